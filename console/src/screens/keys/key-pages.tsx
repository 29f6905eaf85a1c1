/** One page of the keys, with the search for a name. */
import { KeyTable, type KeyTableActions } from "./key-table";
import type { KeyPage } from "./key-types";

/** Which page is shown. */
export interface Place {
  /** What names have in them. */
  text: string;
  /** After which callers the pages up to this one begin. */
  starts: readonly string[];
}

export const FIRST_PAGE: Place = { text: "", starts: [""] };
const PAGE_KEYS = "50";

export function buildPath({ text, starts }: Place): string {
  const after = starts.at(-1);
  const query = new URLSearchParams({ limit: PAGE_KEYS, ...(text ? { text } : {}), ...(after ? { after } : {}) });
  return `v1/keys?${query.toString()}`;
}

interface KeyPagesProps extends KeyTableActions {
  page: KeyPage;
  place: Place;
  onTurn: (place: Place) => void;
}

export function KeyPages({ page, place, onTurn, ...actions }: KeyPagesProps) {
  const { text, starts } = place;
  const last = page.data.at(-1)?.caller_id;
  return (
    <>
      {(text || page.data.length > 0) && (
        <label class="key-search">
          Search names
          <input
            type="search"
            value={text}
            spellcheck={false}
            autocomplete="off"
            onInput={(event) => onTurn({ text: event.currentTarget.value, starts: [""] })}
          />
        </label>
      )}
      <KeyTable keys={page.data} manages={page.manages} hasSearch={text !== ""} {...actions} />
      {(starts.length > 1 || page.has_more) && (
        <p class="actions">
          <button
            type="button"
            disabled={starts.length === 1}
            onClick={() => onTurn({ text, starts: starts.slice(0, -1) })}
          >
            Previous
          </button>
          <button
            type="button"
            disabled={!page.has_more}
            onClick={() => last && onTurn({ text, starts: [...starts, last] })}
          >
            Next
          </button>
        </p>
      )}
    </>
  );
}
