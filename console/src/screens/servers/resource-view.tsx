/** One resource, or one template of resources: its address, and what is there to read. */
import { useMemo, useState } from "preact/hooks";
import { CopyButton } from "../../components/copy-button";
import { ResourceView as ContentOfResource } from "./content-view";
import { readResource, type ReadResult } from "./mcp-client";
import { RequestActions, RequestOutcome, useMCPRequest } from "./mcp-request";
import { OfferDetails } from "./offer-details";
import { SchemaFields } from "../../components/schema-fields";
import { buildTextField, focusProblem, readForm } from "../../components/schema-form";
import type { MCPResource, ResourceTemplate } from "./server-types";
import { expandTemplate, listVariables } from "./uri-template";

// The field for an address where a template has no variables that can be filled.
const ADDRESS = "URI";

export function ResourceView({ server, resource }: { server: string; resource: MCPResource }) {
  const request = useMCPRequest<ReadResult>();
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    request.start((answered, signal) => readResource(server, resource.uri, { ...answered, signal }));
  };
  return (
    <OfferDetails
      name={resource.uri}
      title={resource.title ?? resource.name}
      about={resource.description}
      mimeType={resource.mimeType}
    >
      <form aria-label={`Read ${resource.uri}`} onSubmit={submit}>
        <RequestActions request={request} label="Read" />
      </form>
      <RequestOutcome request={request}>{(result) => <Contents result={result} />}</RequestOutcome>
    </OfferDetails>
  );
}

export function TemplateView({ server, template }: { server: string; template: ResourceTemplate }) {
  return (
    <OfferDetails
      name={template.uriTemplate}
      title={template.title ?? template.name}
      about={template.description}
      mimeType={template.mimeType}
    >
      <TemplateForm server={server} template={template} />
    </OfferDetails>
  );
}

function TemplateForm({ server, template }: { server: string; template: ResourceTemplate }) {
  const variables = useMemo(() => listVariables(template.uriTemplate), [template]);
  const fields = useMemo(
    () =>
      variables?.map(({ name, isRequired }) => buildTextField(name, { isRequired })) ?? [
        buildTextField(ADDRESS, {
          isRequired: true,
          hint: "The template has an expression that is not known here.",
          initial: template.uriTemplate,
        }),
      ],
    [variables, template],
  );
  const [texts, setTexts] = useState<ReadonlyMap<string, string>>(new Map());
  const [problems, setProblems] = useState<ReadonlyMap<string, string>>(new Map());
  const request = useMCPRequest<ReadResult>();
  const uri = variables ? expandTemplate(template.uriTemplate, texts) : (texts.get(ADDRESS) ?? template.uriTemplate);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    // A variable with an empty value is one without.
    const filled = readForm(fields, new Map([...texts].filter(([, text]) => text !== "")));
    setProblems(filled.problems);
    if (filled.problems.size > 0) focusProblem(event);
    else request.start((answered, signal) => readResource(server, uri, { ...answered, signal }));
  };
  return (
    <>
      <form aria-label={`Read ${template.uriTemplate}`} noValidate onSubmit={submit}>
        <SchemaFields
          fields={fields}
          texts={texts}
          problems={problems}
          onChange={(name, text) => setTexts((before) => new Map(before).set(name, text))}
        />
        <p class="built-uri">
          Reads <output aria-label="URI">{uri}</output>
        </p>
        <RequestActions request={request} label="Read" />
      </form>
      <RequestOutcome request={request}>{(result) => <Contents result={result} />}</RequestOutcome>
    </>
  );
}

function Contents({ result }: { result: ReadResult }) {
  const contents = (Array.isArray(result.contents) ? result.contents : []).filter((each) => typeof each === "object");
  return (
    <div class="tool-result">
      {contents.length === 0 && <p class="hint">It is empty.</p>}
      {contents.map((content, index) => (
        <ContentOfResource key={index} content={content} source="resource" />
      ))}
      <CopyButton text={() => JSON.stringify(result, null, 2)} label="Copy as JSON" />
    </div>
  );
}
