import assert from "node:assert/strict";
import { test } from "node:test";
import { fileNameOf } from "../src/components/save-file";

test("a file that is saved has a harmless name", () => {
  const names = ["demo://resource/dynamic/blob/1", "file:///a/../.bashrc?x=/y", 'x://a/b"c\\d<e>\u202etxt', "x://"];
  assert.deepEqual(
    names.map((name) => fileNameOf(name, "resource")),
    ["1", "bashrc", "d_e__txt", "resource"],
  );
  assert.equal(fileNameOf(`x://${"n".repeat(500)}`, "resource").length, 100);
});
