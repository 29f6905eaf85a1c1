/** The caller of this page: what it may use, what is left of its budgets, and the sessions of a person. */
import { useState } from "preact/hooks";
import { fetchJSON } from "../../api/client";
import { logOut, readPerson } from "../../api/person";
import type { Me, Session } from "../../api/schema";
import type { List } from "../../api/types";
import { Failure } from "../../components/failure";
import { formatTime } from "../../components/format";
import { asError, useResource } from "../../components/resource";

export function AccountScreen() {
  const me = useResource<Me>("v1/me");
  const [failure, setFailure] = useState("");
  const leave = async () => {
    try {
      await logOut();
    } catch (error) {
      setFailure(asError(error).message);
    }
  };
  return (
    <div class="screen-padding account-screen">
      <header class="server-head">
        <h1>Account</h1>
        {me.value?.session && (
          <button type="button" onClick={() => void leave()}>
            Log out
          </button>
        )}
      </header>
      {me.error && <Failure error={me.error} />}
      {!me.value && !me.error && <p class="hint">Loading…</p>}
      <div aria-live="polite">{failure && <p class="alert">{failure}</p>}</div>
      {me.value && <Caller me={me.value} />}
      {me.value?.session && <Sessions />}
    </div>
  );
}

function Caller({ me }: { me: Me }) {
  return (
    <>
      <dl class="facts">
        <div>
          <dt>Name</dt>
          <dd>{me.name ?? me.id}</dd>
        </div>
        <div>
          <dt>Id</dt>
          <dd>
            <code>{me.id}</code>
          </dd>
        </div>
        {me.group && (
          <div>
            <dt>Group</dt>
            <dd>{me.group}</dd>
          </div>
        )}
        {me.role && (
          <div>
            <dt>Role</dt>
            <dd>{me.role}</dd>
          </div>
        )}
      </dl>
      <h2>May use</h2>
      <Scope allow={me.allow} />
      <h2>Budget</h2>
      {me.budgets.length === 0 && <p>No budget limits what you spend.</p>}
      <ul class="listed">
        {me.budgets.map((budget) => (
          <li key={budget.owner}>
            {budget.owner}: <strong>{budget.left.toFixed(2)}</strong> left of {budget.amount} each {budget.period}
            <span class="hint"> until {formatTime(budget.resets_at)}</span>
          </li>
        ))}
      </ul>
    </>
  );
}

/** What all scopes of an entry allow together, for any of the entries. */
function Scope({ allow }: { allow: Me["allow"] }) {
  if (allow === null) return <p>Everything that this gateway has.</p>;
  if (allow.length === 0) return <p>Nothing. Ask the operator of this gateway.</p>;
  return (
    <ul class="listed" aria-label="Scopes">
      {allow.map((entry, index) => (
        <li key={index}>
          {entry.map((scope, place) => (
            <p key={place}>
              {place > 0 && "and of that only: "}
              <ScopeText scope={scope} />
            </p>
          ))}
        </li>
      ))}
    </ul>
  );
}

function ScopeText({ scope }: { scope: Record<string, unknown> }) {
  const kinds = Object.entries(scope) as [string, string[]][];
  if (kinds.length === 0) return <>everything</>;
  return (
    <>
      {kinds.map(([kind, patterns], index) => (
        <span key={kind}>
          {index > 0 && "; "}
          {kind} <code>{patterns.join(", ") || "none"}</code>
        </span>
      ))}
    </>
  );
}

function Sessions() {
  const sessions = useResource<List<Session>>("v1/sessions");
  const [failure, setFailure] = useState("");
  const end = async (session: Session) => {
    setFailure("");
    try {
      await fetchJSON(`v1/sessions/${session.id}`, { method: "DELETE" });
    } catch (error) {
      setFailure(asError(error).message);
    }
    await sessions.read();
    if (session.is_current) await readPerson();
  };
  return (
    <>
      <h2>Sessions</h2>
      {sessions.error && <Failure error={sessions.error} />}
      <div aria-live="polite">{failure && <p class="alert">{failure}</p>}</div>
      <ul class="listed" aria-label="Sessions">
        {sessions.value?.data.map((session) => (
          <li key={session.id}>
            {session.about || "A browser that does not say its name"}
            <span class="hint">
              {" "}
              since {formatTime(session.created_at)}, until {formatTime(session.expires_at)}
            </span>{" "}
            {session.is_current ? (
              <strong>this one</strong>
            ) : (
              <button type="button" class="quiet" onClick={() => void end(session)}>
                End
              </button>
            )}
          </li>
        ))}
      </ul>
    </>
  );
}
