/** What the gateway runs by, and what is wrong with a file that was changed since. */
import type { Configuration } from "../../api/schema";
import { CopyButton } from "../../components/copy-button";
import { Failure } from "../../components/failure";
import { formatTime } from "../../components/format";
import { useResource } from "../../components/resource";
import { usePolling } from "../../components/polling";
import { writeSettings } from "./settings-text";

type Problem = Configuration["problems"][number];

// Between two reads: a file that is being edited shows its problems soon.
const POLL_MS = 3_000;

export function ConfigurationScreen() {
  const configuration = useResource<Configuration>("v1/config");
  const shown = configuration.value;
  usePolling(configuration.read, shown !== null, POLL_MS);
  return (
    <div class="screen-padding configuration-screen">
      <h1>Configuration</h1>
      {configuration.error && <Failure error={configuration.error} />}
      {!shown && !configuration.error && <p class="hint">Loading…</p>}
      {shown && <ConfigurationView shown={shown} />}
    </div>
  );
}

function ConfigurationView({ shown }: { shown: Configuration }) {
  const text = writeSettings(shown.settings);
  return (
    <>
      <p class="hint file-line">
        <code>{shown.file}</code>
        {shown.read_at !== null && <> read at {formatTime(shown.read_at)}.</>}{" "}
        {shown.watches_files
          ? "A change of it is applied by itself."
          : "It is not watched: send the gateway SIGHUP after a change."}
      </p>
      <div aria-live="polite">
        {shown.problems.length > 0 && (
          <section class="alert" aria-label="Problems">
            <h2>The changed file is refused</h2>
            <p>The gateway goes on with what it has read before, which is shown below.</p>
            <ProblemList problems={shown.problems} />
          </section>
        )}
        {shown.restart_keys.length > 0 && (
          <section class="note" aria-label="Needs a restart">
            <h2>Changed, and not in force before a restart</h2>
            <ul>
              {shown.restart_keys.map((each) => (
                <li key={each}>
                  <code>{each}</code>
                </li>
              ))}
            </ul>
          </section>
        )}
      </div>
      {shown.warnings.length > 0 && (
        <section class="note" aria-label="Warnings">
          <h2>Warnings</h2>
          <ProblemList problems={shown.warnings} />
        </section>
      )}
      {shown.agents.length > 0 && (
        <>
          <h2>Agents</h2>
          <ul class="listed">
            {shown.agents.map((agent) => (
              <li key={agent.name}>
                {agent.name} <code class="hint">{agent.file}</code>
              </li>
            ))}
          </ul>
        </>
      )}
      <h2>In force</h2>
      <p class="hint">
        The file as it is written: values of variables are not in it, only their names; of keys, the start of their
        hashes. It is changed on disk, not here. <CopyButton text={text} />
      </p>
      <pre class="settings" tabIndex={0} aria-label="Settings in force">
        {text}
      </pre>
    </>
  );
}

function ProblemList({ problems }: { problems: readonly Problem[] }) {
  return (
    <ul class="problems">
      {problems.map((problem, index) => (
        <li key={index}>
          <p>{problem.message}</p>
          <p class="hint">
            {problem.file && <code>{`${problem.file}${problem.line === null ? "" : `:${problem.line}`}`}</code>}
            {problem.key && (
              <>
                {" "}
                at <code>{problem.key}</code>
              </>
            )}
          </p>
          {problem.fix && <p>{problem.fix}</p>}
        </li>
      ))}
    </ul>
  );
}
