/** One prompt: a form of its arguments, and the messages that it makes of them. */
import { useMemo, useState } from "preact/hooks";
import { CopyButton } from "../../components/copy-button";
import { ContentView, textOf } from "./content-view";
import { getPrompt, type ContentBlock, type PromptResult } from "./mcp-client";
import { RequestActions, RequestOutcome, useMCPRequest } from "./mcp-request";
import { OfferDetails } from "./offer-details";
import { SchemaFields } from "../../components/schema-fields";
import { buildTextField, focusProblem, readForm } from "../../components/schema-form";
import type { Prompt } from "./server-types";

export function PromptView({ server, prompt }: { server: string; prompt: Prompt }) {
  return (
    <OfferDetails name={prompt.name} title={prompt.title} about={prompt.description}>
      <PromptForm server={server} prompt={prompt} />
    </OfferDetails>
  );
}

function PromptForm({ server, prompt }: { server: string; prompt: Prompt }) {
  const fields = useMemo(() => {
    const named = (prompt.arguments ?? []).filter((each) => each.name);
    const byName = new Map(named.map((each) => [each.name, each] as const));
    return [...byName.values()].map((each) =>
      buildTextField(each.name, { isRequired: each.required === true, hint: textOf(each.description) }),
    );
  }, [prompt]);
  const [texts, setTexts] = useState<ReadonlyMap<string, string>>(new Map());
  const [problems, setProblems] = useState<ReadonlyMap<string, string>>(new Map());
  const request = useMCPRequest<PromptResult>();
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const filled = readForm(fields, texts);
    setProblems(filled.problems);
    if (filled.problems.size > 0) focusProblem(event);
    else request.start((answered, signal) => getPrompt(server, prompt.name, filled.values, { ...answered, signal }));
  };
  return (
    <>
      <form aria-label={`Get ${prompt.name}`} noValidate onSubmit={submit}>
        {fields.length === 0 && <p class="hint">It takes no arguments.</p>}
        <SchemaFields
          fields={fields}
          texts={texts}
          problems={problems}
          onChange={(name, text) => setTexts((before) => new Map(before).set(name, text))}
        />
        <RequestActions request={request} label="Get" />
      </form>
      <RequestOutcome request={request}>{(result) => <Messages result={result} />}</RequestOutcome>
    </>
  );
}

function Messages({ result }: { result: PromptResult }) {
  const messages = Array.isArray(result.messages) ? result.messages : [];
  return (
    <div class="tool-result">
      {result.description && <p>{textOf(result.description)}</p>}
      {messages.length === 0 && <p class="hint">It has no messages.</p>}
      {messages.map((message, index) => (
        <div key={index} class="prompt-message" role="group" aria-label={`Message ${index + 1}`}>
          <h3>{textOf(message.role)}</h3>
          {listBlocks(message.content).map((block, number) => (
            <ContentView key={number} block={block} source="prompt" />
          ))}
        </div>
      ))}
      <CopyButton text={() => JSON.stringify(result, null, 2)} label="Copy as JSON" />
    </div>
  );
}

/** The parts of a message, which has one or a list of them. */
function listBlocks(content: ContentBlock | ContentBlock[] | null | undefined): ContentBlock[] {
  const blocks = Array.isArray(content) ? content : [content];
  return blocks.filter((block): block is ContentBlock => typeof block === "object" && block !== null);
}
