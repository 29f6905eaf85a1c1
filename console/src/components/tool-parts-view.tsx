/** Pictures, sounds and files that a tool returned. Nothing of them is loaded from elsewhere. */
import { useState } from "preact/hooks";
import { formatBytes } from "./format";
import { decodeBase64, saveBytes } from "./save-file";
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
    const bytes = decodeBase64(part.data);
    setFailure(bytes ? "" : "Its data is damaged.");
    if (bytes) saveBytes(bytes, part.name);
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
