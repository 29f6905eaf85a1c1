import assert from "node:assert/strict";
import { test } from "node:test";
import { compareLines, findEdits } from "../src/components/compare-lines";

function show(before: string, after: string): string[] {
  const signs = { same: " ", removed: "-", added: "+" };
  return compareLines(before, after).map((line) => signs[line.kind] + line.text);
}

test("lines that both texts have are shown once", () => {
  assert.deepEqual(show("a\nb\nc", "a\nx\nc"), [" a", "-b", "+x", " c"]);
  assert.deepEqual(show("a\nb", "b\nc"), ["-a", " b", "+c"]);
  assert.deepEqual(show("same", "same"), [" same"]);
});

test("each text can be read off the comparison", () => {
  const before = "one\ntwo\nthree\n\nfour\ntwo";
  const after = "zero\ntwo\nthree\nfour\n\nfive";
  const lines = compareLines(before, after);
  const without = (kind: string) => lines.filter((line) => line.kind !== kind).map((line) => line.text);
  assert.equal(without("added").join("\n"), before);
  assert.equal(without("removed").join("\n"), after);
});

test("very long texts are shown one after the other", () => {
  const long = Array.from({ length: 2_000 }, (_, index) => String(index)).join("\n");
  assert.equal(compareLines(long, long).length, 4_000);
});

test("edits are found on the top level of arguments and in a list, with what they leave out", () => {
  assert.deepEqual(findEdits('{"path": "a", "old_string": "1", "new_string": "2"}'), {
    edits: [{ before: "1", after: "2" }],
    rest: { path: "a" },
  });
  const list = '{"path": "a", "edits": [{"oldText": "1", "newText": "2"}, {"oldText": "3", "newText": "4"}]}';
  assert.deepEqual(findEdits(list), {
    edits: [
      { before: "1", after: "2" },
      { before: "3", after: "4" },
    ],
    rest: { path: "a" },
  });
});

test("an argument of one edit in a list is not left out", () => {
  const text = '{"edits": [{"oldText": "1", "newText": "2", "everywhere": true}]}';
  assert.deepEqual(findEdits(text).rest, JSON.parse(text));
});

test("other arguments have no edits", () => {
  for (const text of ["{", "[]", "null", '{"old": 1, "new": 2}', '{"edits": [{"oldText": "1"}]}', '{"edits": []}']) {
    assert.deepEqual(findEdits(text).edits, []);
  }
});
