/** Beside the conversation: an exchange as curl, Python and YAML, and its raw events. */
import { useEffect, useRef, useState } from "preact/hooks";
import { urlOf } from "../../api/client";
import { key } from "../../api/key";
import type { Model, ResponseEvent } from "../../api/types";
import { CopyButton } from "../../components/copy-button";
import { VirtualList } from "../../components/virtual-list";
import { buildBody, hasQuestion, type Exchange } from "./conversation";
import { buildCurl, buildPython, buildTestCase, simplifyBody } from "./exports";

const TABS = ["Events", "curl", "Python", "YAML test case"] as const;
type Tab = (typeof TABS)[number];
const ROW_HEIGHT = 28;
const ANSWERED_ONCE = `# This answers an approval, which can be done once.
# The exchange before has the question, as a command and as a test case.
`;

interface InspectorProps {
  exchange: Exchange;
  model: Model;
  onClose: () => void;
}

export function Inspector({ exchange, model, onClose }: InspectorProps) {
  const [tab, setTab] = useState<Tab>("Events");
  const title = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    const opener = document.activeElement;
    title.current?.focus();
    return () => {
      if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
    };
  }, []);
  return (
    <aside class="inspector" aria-label="Code and events">
      <header class="inspector-head">
        <h2 ref={title} tabIndex={-1}>
          Code and events
        </h2>
        <button type="button" class="quiet" onClick={onClose}>
          Close
        </button>
      </header>
      <Tabs selected={tab} onSelect={setTab} />
      <div class="inspector-body" role="tabpanel" id="inspector-panel" aria-labelledby={`tab-${TABS.indexOf(tab)}`}>
        {tab === "Events" ? <Events exchange={exchange} /> : <Code text={buildText(tab, exchange, model)} />}
      </div>
    </aside>
  );
}

function Tabs({ selected, onSelect }: { selected: Tab; onSelect: (tab: Tab) => void }) {
  const list = useRef<HTMLDivElement>(null);
  const onKeyDown = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (step === 0) return;
    const index = (TABS.indexOf(selected) + step + TABS.length) % TABS.length;
    onSelect(TABS[index] ?? "Events");
    list.current?.querySelectorAll<HTMLButtonElement>("[role=tab]")[index]?.focus();
  };
  return (
    <div ref={list} class="tabs" role="tablist" aria-label="Form" onKeyDown={onKeyDown}>
      {TABS.map((each, index) => (
        <button
          key={each}
          type="button"
          role="tab"
          id={`tab-${index}`}
          aria-selected={each === selected}
          aria-controls="inspector-panel"
          tabIndex={each === selected ? 0 : -1}
          onClick={() => onSelect(each)}
        >
          {each}
        </button>
      ))}
    </div>
  );
}

function Code({ text }: { text: string }) {
  return (
    <div class="code">
      <CopyButton text={text} />
      <pre tabIndex={0}>{text}</pre>
    </div>
  );
}

function Events({ exchange }: { exchange: Exchange }) {
  const [selected, setSelected] = useState(0);
  // Read, so that this is drawn again when there are more.
  const count = exchange.eventCount.value;
  const events = exchange.events.slice(0, count);
  const shown = events[selected];
  if (count === 0) {
    return (
      <p class="hint">
        The events of a response are shown for those that were asked on this page. The stored ones are at{" "}
        <code>v1/responses/{exchange.state.value.id}?stream=true</code>.
      </p>
    );
  }
  return (
    <div class="events">
      <VirtualList
        rows={events}
        rowHeight={ROW_HEIGHT}
        label="Events"
        selected={selected}
        onSelect={setSelected}
        followsEnd
        renderRow={(event) => <EventRow event={event} />}
      />
      {shown && (
        <div class="code">
          <CopyButton text={() => JSON.stringify(shown, null, 2)} />
          <pre tabIndex={0}>{JSON.stringify(shown, null, 2)}</pre>
        </div>
      )}
    </div>
  );
}

function EventRow({ event }: { event: ResponseEvent }) {
  return (
    <>
      <span class="event-number">{event.sequence_number}</span>
      <code>{event.type.replace(/^response\./, "")}</code>
    </>
  );
}

function buildText(tab: Exclude<Tab, "Events">, exchange: Exchange, model: Model): string {
  if (!hasQuestion(exchange)) return ANSWERED_ONCE;
  const context = { base: urlOf("."), hasKey: key.value !== "" };
  const body = simplifyBody(buildBody(model, exchange), exchange.input);
  if (tab === "curl") return buildCurl(body, context);
  return tab === "Python" ? buildPython(body, context) : buildTestCase(exchange);
}
