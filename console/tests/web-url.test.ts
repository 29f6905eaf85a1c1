import assert from "node:assert/strict";
import { test } from "node:test";
import { isWebURL } from "../src/components/web-url";

test("only addresses of web pages become links", () => {
  assert.ok(isWebURL("https://login.example.com/authorize?state=1"));
  assert.ok(isWebURL("http://127.0.0.1:8080/"));
  for (const text of ["javascript:alert(1)", " JavaScript:alert(1)", "data:text/html,x", "file:///etc", "/a", ""]) {
    assert.ok(!isWebURL(text), text);
  }
});
