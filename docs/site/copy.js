// A button on each block of code that copies it: of a block with prompts only the commands, without `$ `.
"use strict";

function textToCopy(block) {
  const text = block.innerText;
  if (!block.closest(".highlight-console")) {
    return text;
  }
  let isCommand = false;
  const commands = text.split("\n").filter((line) => {
    const isFirst = line.startsWith("$ ");
    const isTaken = isFirst || isCommand;
    isCommand = isTaken && line.endsWith("\\");
    return isTaken;
  });
  return commands.map((line) => line.replace(/^\$ /, "")).join("\n") + "\n";
}

async function copyBlock(button, block) {
  try {
    await navigator.clipboard.writeText(textToCopy(block));
    button.textContent = "Copied";
  } catch {
    // A page of the file system, or one without TLS, may not write to the clipboard: the reader can copy the selection.
    window.getSelection().selectAllChildren(block);
    button.textContent = "Selected";
  }
  setTimeout(() => (button.textContent = "Copy"), 2000);
}

document.addEventListener("DOMContentLoaded", () => {
  for (const block of document.querySelectorAll("div.highlight > pre")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy-button";
    button.textContent = "Copy";
    button.addEventListener("click", () => copyBlock(button, block));
    block.parentElement.append(button);
  }
});
