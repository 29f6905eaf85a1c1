/** Where a person writes: text, pictures and files. Enter sends, Shift+Enter is a new line. */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { MessageItem } from "../../api/types";
import { formatBytes } from "../../components/format";
import { readAttachment, type Attachment } from "./attachments";

interface ComposerProps {
  isRunning: boolean;
  canSend: boolean;
  onSend: (message: MessageItem) => void;
  onStop: () => void;
}

export function Composer({ isRunning, canSend, onSend, onStop }: ComposerProps) {
  const text = useSignal("");
  const attachments = useSignal<readonly Attachment[]>([]);
  const failure = useSignal("");
  const area = useRef<HTMLTextAreaElement>(null);
  const files = useRef<HTMLInputElement>(null);
  useEffect(() => area.current?.focus(), []);

  const attach = async (list: Iterable<File>) => {
    failure.value = "";
    try {
      attachments.value = [...attachments.value, ...(await Promise.all([...list].map(readAttachment)))];
    } catch (error) {
      failure.value = error instanceof Error ? error.message : "The file cannot be read.";
    }
  };

  const send = () => {
    const said = text.value.trim();
    if (!canSend || isRunning || (!said && attachments.value.length === 0)) return;
    const parts = attachments.value.map((each) => each.part);
    const content = [...(said ? [{ type: "input_text" as const, text: said }] : []), ...parts];
    onSend({ type: "message", role: "user", content });
    text.value = "";
    attachments.value = [];
    area.current?.focus();
  };

  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  };

  const onPaste = (event: ClipboardEvent) => {
    const pasted = event.clipboardData?.files;
    if (!pasted || pasted.length === 0) return;
    event.preventDefault();
    void attach(pasted);
  };

  const onDrop = (event: DragEvent) => {
    event.preventDefault();
    if (event.dataTransfer) void attach(event.dataTransfer.files);
  };

  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
      onDragOver={(event) => event.preventDefault()}
      onDrop={onDrop}
    >
      <AttachmentList
        attachments={attachments.value}
        onRemove={(removed) => (attachments.value = attachments.value.filter((each) => each !== removed))}
      />
      {failure.value && <p class="alert">{failure.value}</p>}
      <label>
        <span class="visually-hidden">Message</span>
        <textarea
          ref={area}
          rows={3}
          value={text.value}
          placeholder="Ask something. Enter sends, Shift+Enter is a new line."
          onInput={(event) => (text.value = event.currentTarget.value)}
          onKeyDown={onKeyDown}
          onPaste={onPaste}
        />
      </label>
      <div class="composer-buttons">
        <button type="button" onClick={() => files.current?.click()}>
          Attach
        </button>
        <input
          ref={files}
          type="file"
          multiple
          hidden
          aria-label="Files to attach"
          onChange={(event) => {
            const input = event.currentTarget;
            void attach([...(input.files ?? [])]).then(() => (input.value = ""));
          }}
        />
        {isRunning ? (
          <button type="button" class="primary" onClick={onStop}>
            Stop
          </button>
        ) : (
          <button type="submit" class="primary" disabled={!canSend}>
            Send
          </button>
        )}
      </div>
    </form>
  );
}

interface AttachmentListProps {
  attachments: readonly Attachment[];
  onRemove: (attachment: Attachment) => void;
}

function AttachmentList({ attachments, onRemove }: AttachmentListProps) {
  if (attachments.length === 0) return null;
  return (
    <ul class="attachments" aria-label="Attached">
      {attachments.map((each, index) => (
        <li key={index}>
          {each.name} <span class="hint">{formatBytes(each.size)}</span>
          <button type="button" class="quiet" aria-label={`Remove ${each.name}`} onClick={() => onRemove(each)}>
            ×
          </button>
        </li>
      ))}
    </ul>
  );
}
