/** Conversations of the playground, at the gateway. Nothing of them is stored in the browser: several people may use it. */
import { signal } from "@preact/signals";
import { fetchJSON } from "../../api/client";
import { key } from "../../api/key";
import type { List } from "../../api/types";
import {
  buildMetadata,
  readResource,
  type ConversationResource,
  type StoredConversation,
} from "./conversation-metadata";

const MAX_LISTED = 100;
// Programs with the same key may have made any number of others, which are not listed here.
const MAX_PAGES = 5;

/** Those of the key of this tab, the latest first. Null: they were not read yet. */
export const conversations = signal<readonly StoredConversation[] | null>(null);

// What one key may see is nothing for another.
key.subscribe(() => (conversations.value = null));

/** Read the list from the gateway. */
export async function readConversations(): Promise<void> {
  const reader = key.value;
  const before = conversations.value;
  const found: StoredConversation[] = [];
  let after = "";
  for (let page = 0; page < MAX_PAGES && found.length < MAX_LISTED; page += 1) {
    const listed = await fetchJSON<List<ConversationResource>>(`v1/conversations?limit=100${after}`);
    found.push(...listed.data.flatMap((each) => readResource(each) ?? []));
    if (!listed.has_more) break;
    after = `&after=${encodeURIComponent(listed.last_id ?? "")}`;
  }
  if (key.value !== reader) return;
  if (conversations.value === before) conversations.value = sortLatest(found);
  // What was changed here meanwhile may not be among them.
  else await readConversations();
}

export async function storeNew(title: string, model: string, responseId: string): Promise<StoredConversation> {
  const stored = { id: "", title, model, branches: [responseId], updated: now() };
  const body = { metadata: buildMetadata(stored) };
  const { id } = await fetchJSON<ConversationResource>("v1/conversations", { method: "POST", body });
  return show({ ...stored, id });
}

/** Store that a conversation goes on with a response, in the place of the branch that ended with `previous`. */
export async function storeResponse(
  stored: StoredConversation,
  model: string,
  responseId: string,
  previous: string | null,
): Promise<StoredConversation> {
  // Another tab may have gone on with it meanwhile.
  const { branches: known } = await readStored(stored.id);
  const branches = [...known.filter((each) => each !== previous && each !== responseId), responseId];
  const next = show({ ...stored, model, branches, updated: now() });
  await fetchJSON(`v1/conversations/${next.id}`, { method: "POST", body: { metadata: buildMetadata(next) } });
  return next;
}

export async function readStored(id: string): Promise<StoredConversation> {
  const resource = await fetchJSON<ConversationResource>(`v1/conversations/${encodeURIComponent(id)}`);
  const stored = readResource(resource);
  if (!stored) throw new Error("This conversation was not made in the playground. Its items are in the API.");
  return stored;
}

export async function deleteStored(id: string): Promise<void> {
  conversations.value = (conversations.value ?? []).filter((each) => each.id !== id);
  await fetchJSON(`v1/conversations/${encodeURIComponent(id)}`, { method: "DELETE" });
}

/** Put a conversation in its place in the list. */
function show(stored: StoredConversation): StoredConversation {
  const others = (conversations.value ?? []).filter((each) => each.id !== stored.id);
  conversations.value = sortLatest([stored, ...others]);
  return stored;
}

function sortLatest(list: readonly StoredConversation[]): StoredConversation[] {
  return [...list].sort((one, other) => other.updated - one.updated).slice(0, MAX_LISTED);
}

function now(): number {
  return Math.floor(Date.now() / 1000);
}
