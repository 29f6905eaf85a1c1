/**
 * What servers send: text, pictures, resources, files. All of it is untrusted: text is text whatever it looks like, and
 * nothing is loaded from elsewhere. Only pictures in which nothing runs are drawn; other bytes can be saved.
 */
import { formatBytes } from "../../components/format";
import { LongText, MAX_SHOWN_CHARACTERS } from "../../components/long-text";
import { decodeBase64, fileNameOf, saveBytes } from "../../components/save-file";
import { PICTURE_TYPES } from "../../components/tool-parts";
import type { ContentBlock, ResourceContent } from "./mcp-client";

/** A part of a result or of a message. `source` is what it is of, such as `tool`. */
export function ContentView({ block, source }: { block: ContentBlock; source: string }) {
  const type = textOf(block.mimeType);
  if (block.type === "text") return <LongText text={textOf(block.text)} />;
  if (block.type === "image" && PICTURE_TYPES.has(type) && block.data) {
    return <Picture type={type} data={textOf(block.data)} source={source} />;
  }
  if (block.type === "resource" && block.resource) return <ResourceView content={block.resource} source={source} />;
  if (block.type === "resource_link") {
    return (
      <p>
        Resource {textOf(block.name)} <code>{textOf(block.uri)}</code>
      </p>
    );
  }
  return (
    <p class="hint">
      A part of type {textOf(block.type)}
      {type && ` (${type})`}, which is not shown here.
    </p>
  );
}

/** The content of a resource, with its address, type and size. */
export function ResourceView({ content, source }: { content: ResourceContent; source: string }) {
  const uri = textOf(content.uri);
  const type = textOf(content.mimeType);
  return (
    <div class="resource-content">
      <p class="hint">
        <code>{uri}</code>
      </p>
      {typeof content.blob === "string" ? (
        <BytesView data={content.blob} type={type} uri={uri} source={source} />
      ) : (
        <TextView text={textOf(content.text)} type={type} uri={uri} />
      )}
    </div>
  );
}

function TextView({ text, type, uri }: { text: string; type: string; uri: string }) {
  const bytes = new TextEncoder().encode(text);
  return (
    <>
      <Facts type={type} size={bytes.length} />
      <LongText text={text} />
      {text.length > MAX_SHOWN_CHARACTERS && <SaveButton bytes={bytes} uri={uri} />}
    </>
  );
}

interface BytesViewProps {
  data: string;
  type: string;
  uri: string;
  source: string;
}

function BytesView({ data, type, uri, source }: BytesViewProps) {
  const bytes = decodeBase64(data);
  if (!bytes) return <p class="problem">The server says that these are bytes, and they are not valid base64.</p>;
  if (type === "image/svg+xml" || type.startsWith("text/")) {
    return <TextView text={new TextDecoder().decode(bytes)} type={type} uri={uri} />;
  }
  return (
    <>
      <Facts type={type} size={bytes.length} />
      {PICTURE_TYPES.has(type) && <Picture type={type} data={data} source={source} />}
      <SaveButton bytes={bytes} uri={uri} />
    </>
  );
}

function Facts({ type, size }: { type: string; size: number }) {
  return (
    <p class="hint">
      {type || "no type given"}, {formatBytes(size)}
    </p>
  );
}

function Picture({ type, data, source }: { type: string; data: string; source: string }) {
  return <img class="tool-picture" src={`data:${type};base64,${data}`} alt={`Picture of the ${source} (${type})`} />;
}

function SaveButton({ bytes, uri }: { bytes: Uint8Array<ArrayBuffer>; uri: string }) {
  return (
    <p class="actions">
      <button type="button" onClick={() => saveBytes(bytes, fileNameOf(uri, "resource"))}>
        Download ({formatBytes(bytes.length)})
      </button>
    </p>
  );
}

/** A value that should be a text. A server may have sent something else. */
export function textOf(value: unknown): string {
  if (typeof value === "string") return value;
  return value === undefined || value === null ? "" : JSON.stringify(value);
}
