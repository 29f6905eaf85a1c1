/** Pictures, sounds and files that a tool returned. Nothing of them is loaded from elsewhere. */
import { useState } from "preact/hooks";
import { formatBytes } from "./format";
import { dataURLOf, sizeOfBase64, type ToolPart } from "./tool-parts";

interface ToolPartsViewProps {
  parts: readonly ToolPart[];
  tool: string;
  server: string | null;
}

export function ToolPartsView({ parts, tool, server }: ToolPartsViewProps) {
  if (parts.length === 0) return null;
  const source = server ? `${tool} of ${server}` : tool;
  return (
    <div class="tool-parts">
      {parts.map((part, index) => (
        <PartView key={index} part={part} source={parts.length > 1 ? `${source}, part ${index + 1}` : source} />
      ))}
    </div>
  );
}

function PartView({ part, source }: { part: ToolPart; source: string }) {
  if (part.kind === "picture") return <img class="tool-picture" src={dataURLOf(part)} alt={`Picture from ${source}`} />;
  if (part.kind === "sound") {
    return (
      <audio class="tool-sound" controls preload="metadata" src={dataURLOf(part)} aria-label={`Sound from ${source}`} />
    );
  }
  return <FileView part={part} />;
}

function FileView({ part }: { part: ToolPart }) {
  const [failure, setFailure] = useState("");
  const save = () => {
    try {
      saveFile(part);
      setFailure("");
    } catch {
      setFailure("Its data is damaged.");
    }
  };
  return (
    <p class="tool-file">
      <span class="file-name">{part.name}</span>{" "}
      <span class="hint">
        {part.type || "unknown type"}, {formatBytes(sizeOfBase64(part.data))}
      </span>{" "}
      <button type="button" class="quiet" aria-label={`Save ${part.name}`} onClick={save}>
        Save
      </button>
      {failure && (
        <span class="error-text" role="alert">
          {" "}
          {failure}
        </span>
      )}
    </p>
  );
}

/** Offer a part as a download. Its own type is not used, so that no browser opens it as a page of the gateway. */
function saveFile(part: ToolPart): void {
  const bytes = Uint8Array.from(atob(part.data), (char) => char.charCodeAt(0));
  const url = URL.createObjectURL(new Blob([bytes], { type: "application/octet-stream" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = part.name;
  link.click();
  URL.revokeObjectURL(url);
}
