/**
 * Markdown of models and servers, as nodes that cannot run, load or leave the page by themselves: HTML in it is shown as
 * text, links are http, https and mailto only and open elsewhere, and a picture is a link to it.
 */
import DOMPurify from "dompurify";
import { Marked, type Tokens, type TokensList } from "marked";
import { useLayoutEffect, useRef } from "preact/hooks";

// Levels of headings that the page itself has.
const PAGE_LEVELS = 2;
const SAFE_URL = /^(?:https?:|mailto:)/i;
const TAGS = "p br strong em del code pre ul ol li blockquote h3 h4 h5 h6 hr a table thead tbody tr th td".split(" ");

const marked = new Marked({ gfm: true, async: false });
marked.use({
  renderer: {
    html: ({ text }: Tokens.HTML | Tokens.Tag) => escapeText(text),
    image: ({ href, text }: Tokens.Image) => linkTo(href, `picture: ${text || href}`),
    checkbox: ({ checked }: Tokens.Checkbox) => (checked ? "☑ " : "☐ "),
    link({ href, tokens }: Tokens.Link) {
      const inner = this.parser.parseInline(tokens);
      return SAFE_URL.test(href) ? `<a href="${escapeText(href)}">${inner}</a>` : inner;
    },
    heading({ tokens, depth }: Tokens.Heading) {
      return `<h${depth}>${this.parser.parseInline(tokens)}</h${depth}>`;
    },
  },
});

/** The nodes of a Markdown text. What the renderer lets through is sanitised again. */
export function renderMarkdown(text: string): DocumentFragment {
  const fragment = DOMPurify.sanitize(marked.parser(readTokens(text)), {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: ["href", "start"],
    ALLOWED_URI_REGEXP: SAFE_URL,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    RETURN_DOM_FRAGMENT: true,
  });
  for (const link of fragment.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer nofollow";
  }
  for (const table of fragment.querySelectorAll("table")) wrapTable(table);
  return fragment;
}

/** The tokens of a text, with headings that begin below those of the page and leave out no level. */
function readTokens(text: string): TokensList {
  const tokens = marked.lexer(text);
  let last = PAGE_LEVELS;
  void marked.walkTokens(tokens, (token) => {
    if (token.type !== "heading") return;
    const heading = token as Tokens.Heading;
    last = heading.depth = Math.min(6, heading.depth + PAGE_LEVELS, last + 1);
  });
  return tokens;
}

/** A wide table scrolls by itself, also by keyboard. */
function wrapTable(table: HTMLTableElement): void {
  const box = document.createElement("div");
  box.className = "table-scroll";
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", "Table");
  table.replaceWith(box);
  box.append(table);
}

function linkTo(href: string, text: string): string {
  const shown = escapeText(`[${text}]`);
  return SAFE_URL.test(href) ? `<a href="${escapeText(href)}">${shown}</a>` : shown;
}

function escapeText(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

export function Markdown({ text }: { text: string }) {
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    box.current?.replaceChildren(renderMarkdown(text));
  }, [text]);
  return <div ref={box} class="markdown" />;
}
