/** The playground: a conversation with a model or agent, and what happens in it. */
import { useSignal, type Signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { APIError } from "../../api/client";
import { key } from "../../api/key";
import type { ApprovalResponseItem, InputItem, List, MessageItem, Model } from "../../api/types";
import { usePolling } from "../../components/polling";
import { asError, useResource } from "../../components/resource";
import { buildHash, goTo } from "../../shell/route";
import type { ScreenProps } from "../../shell/screen";
import { Composer } from "./composer";
import { Conversation, type Exchange } from "./conversation";
import { ConversationList } from "./conversation-list";
import { ExchangeView } from "./exchange-view";
import { Inspector } from "./inspector";

const MODEL_STORAGE_NAME = "holodeck.model";
// Between two reads of the models: those of a changed file are offered, and others are not.
const MODELS_POLL_MS = 30_000;

export function PlaygroundScreen({ segments }: ScreenProps) {
  const { value: models, error, read } = useResource<List<Model>>("v1/models");
  usePolling(read, models !== null, MODELS_POLL_MS);
  if (!models && error) {
    return (
      <div class="empty">
        <h1>Playground</h1>
        <p role="alert">{error.message}</p>
        <button type="button" onClick={() => void read()}>
          Load again
        </button>
      </div>
    );
  }
  if (!models) return <p class="hint screen-padding">Loading…</p>;
  if (models.data.length === 0) {
    return (
      <div class="empty">
        <h1>Playground</h1>
        <p>{key.value ? "Your key may use no model and no agent." : "The gateway has no model and no agent."}</p>
      </div>
    );
  }
  return <Chat models={models.data} conversationId={segments[0] ?? ""} />;
}

/** The conversation of the route. A new one gets its id, and the page its route, with the first answer. */
function useConversation(id: string): { conversation: Conversation; failure: string; isMissing: boolean } {
  const shown = useRef<Conversation | null>(null);
  const failure = useSignal("");
  const isMissing = useSignal(false);
  const conversation = useMemo(() => {
    if (shown.current && id && shown.current.stored.peek()?.id === id) return shown.current;
    shown.current?.close();
    return (shown.current = new Conversation());
  }, [id]);

  useEffect(() => {
    failure.value = "";
    isMissing.value = false;
    if (!id || conversation.stored.peek()?.id === id) return;
    conversation.load(id).catch((error: unknown) => {
      // It was deleted, or is of another key than that of this tab.
      isMissing.value = error instanceof APIError && error.status === 404;
      failure.value = isMissing.value
        ? "Your key has no such conversation. A message begins a new one."
        : asError(error).message;
    });
  }, [conversation, id, failure, isMissing]);

  const storedId = conversation.stored.value?.id;
  useEffect(() => {
    if (storedId && storedId !== id) goTo(buildHash(["playground", storedId]), { replace: true });
  }, [storedId, id]);

  useEffect(() => () => shown.current?.close(), []);
  return { conversation, failure: failure.value, isMissing: isMissing.value };
}

function Chat({ models, conversationId }: { models: readonly Model[]; conversationId: string }) {
  const { conversation, failure, isMissing } = useConversation(conversationId);
  const inspected = useSignal<Exchange | null>(null);
  const instructions = useSignal("");
  const stopFailure = useSignal("");
  const modelName = useSignal(localStorage.getItem(MODEL_STORAGE_NAME) ?? "");
  const model = models.find((each) => each.id === modelName.value) ?? models[0];

  const storedModel = conversation.stored.value?.model;
  useEffect(() => {
    inspected.value = null;
    if (storedModel) modelName.value = storedModel;
  }, [conversation, storedModel, inspected, modelName]);

  if (!model) return null;
  const ask = (input: readonly InputItem[], previous: string | null, by = model, said = instructions.value.trim()) => {
    stopFailure.value = "";
    conversation.ask(by, input, previous, said);
  };
  const modelOf = (exchange: Exchange) => models.find((each) => each.id === exchange.model) ?? model;
  const edit = (exchange: Exchange, text: string) => {
    const kept = exchange.input.flatMap((item) => (item.type === "message" ? item.content : []));
    const others = kept.filter((part) => !("text" in part));
    const content: MessageItem["content"] = [{ type: "input_text", text }, ...others];
    ask([{ type: "message", role: "user", content }], exchange.previous, model, exchange.instructions);
  };
  const retry = (exchange: Exchange) => {
    ask(exchange.input, exchange.previous, modelOf(exchange), exchange.instructions);
  };
  const decide = (exchange: Exchange, answers: ApprovalResponseItem[]) => {
    ask(answers, exchange.state.value.id, modelOf(exchange), exchange.instructions);
  };
  const stop = () => {
    const head = conversation.head.value;
    if (!head) return;
    conversation.cancel(head).catch((error: unknown) => {
      stopFailure.value = `It could not be stopped: ${asError(error).message}`;
    });
  };

  const chooseModel = (name: string) => {
    modelName.value = name;
    localStorage.setItem(MODEL_STORAGE_NAME, name);
  };

  const path = conversation.path.value;
  return (
    <div class={`playground ${inspected.value ? "with-inspector" : ""}`}>
      <ConversationList current={conversationId} />
      <section class="chat" aria-label="Conversation">
        <ChatHead models={models} model={model} onModel={chooseModel} instructions={instructions} />
        <Log path={path}>
          {failure && (
            <p class="alert" role="alert">
              {failure}
            </p>
          )}
          {path.length === 0 && !conversationId && (
            <div class="empty">
              <h2>Ask {model.id} something</h2>
              <p>Its answer, its tool calls and its tokens appear here as they happen.</p>
            </div>
          )}
          {path.map((exchange, index) => (
            <ExchangeView
              key={exchange.key}
              exchange={exchange}
              conversation={conversation}
              isLast={index === path.length - 1}
              answers={answersAfter(path[index + 1])}
              onRetry={retry}
              onEdit={edit}
              onDecide={decide}
              onInspect={(each) => (inspected.value = each)}
            />
          ))}
        </Log>
        {stopFailure.value && (
          <p class="alert" role="alert">
            {stopFailure.value}
          </p>
        )}
        <Composer
          isRunning={conversation.isRunning.value}
          canSend={!failure || isMissing}
          onSend={(message) => ask([message], conversation.lastResponse)}
          onStop={stop}
        />
      </section>
      {inspected.value && (
        <Inspector
          key={inspected.value.key}
          exchange={inspected.value}
          model={modelOf(inspected.value)}
          onClose={() => (inspected.value = null)}
        />
      )}
    </div>
  );
}

interface ChatHeadProps {
  models: readonly Model[];
  model: Model;
  onModel: (name: string) => void;
  instructions: Signal<string>;
}

function ChatHead({ models, model, onModel, instructions }: ChatHeadProps) {
  return (
    <header class="chat-head">
      <h1 class="visually-hidden">Playground</h1>
      <label class="model-choice">
        Model
        <select value={model.id} onChange={(event) => onModel(event.currentTarget.value)}>
          {models.map((each) => (
            <option key={each.id} value={each.id}>
              {each.id}
              {each.kind === "agent" ? " (agent)" : ""}
            </option>
          ))}
        </select>
      </label>
      <span class="hint">{describeModel(model)}</span>
      <details class="instructions">
        <summary>Instructions</summary>
        <label>
          <span class="visually-hidden">Instructions for the model</span>
          <textarea
            rows={2}
            value={instructions.value}
            placeholder="Sent with each message, in place of those of the agent."
            onInput={(event) => (instructions.value = event.currentTarget.value)}
          />
        </label>
      </details>
    </header>
  );
}

/** The exchanges; it stays at the end while they grow, unless the person has scrolled up. */
function Log({ path, children }: { path: readonly Exchange[]; children: ComponentChildren }) {
  const box = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const last = path.at(-1);
  useEffect(() => {
    isAtEnd.current = true;
    // The button that led to a new exchange is gone.
    if (last && document.activeElement === document.body) box.current?.focus();
  }, [last]);
  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const stayAtEnd = () => {
      if (isAtEnd.current) element.scrollTop = element.scrollHeight;
    };
    const observer = new MutationObserver(stayAtEnd);
    observer.observe(element, { childList: true, subtree: true, characterData: true });
    // A picture has its height once it is decoded. Its event does not bubble.
    element.addEventListener("load", stayAtEnd, { capture: true });
    return () => {
      observer.disconnect();
      element.removeEventListener("load", stayAtEnd, { capture: true });
    };
  }, []);
  const onScroll = () => {
    const element = box.current;
    if (element) isAtEnd.current = element.scrollTop + element.clientHeight >= element.scrollHeight - 40;
  };
  return (
    <div ref={box} class="chat-log" tabIndex={0} role="log" aria-live="off" aria-label="Exchanges" onScroll={onScroll}>
      {children}
    </div>
  );
}

function answersAfter(next: Exchange | undefined): readonly ApprovalResponseItem[] {
  return next ? next.input.filter((item) => item.type === "mcp_approval_response") : [];
}

function describeModel(model: Model): string {
  const servers = model.mcp_servers.length;
  const parts = [model.description, servers > 0 ? `servers: ${model.mcp_servers.join(", ")}` : "no servers"];
  return parts.filter(Boolean).join(" · ");
}
