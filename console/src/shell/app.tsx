/** The frame around the screens: skip link, navigation, the screen of the route, and the dialog for a key. */
import { useSignal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { key, keyChanges, removeKey } from "../api/key";
import { person, readPerson } from "../api/person";
import { SCREENS } from "../screens/registry";
import { KeyDialog } from "./key-dialog";
import { route } from "./route";
import type { ScreenProps } from "./screen";
import { THEMES, theme, type Theme } from "./theme";

export function App() {
  const [name = SCREENS[0].name, ...segments] = route.value.segments;
  const screen = SCREENS.find((each) => each.name === name);
  const main = useRef<HTMLElement>(null);
  const isFirst = useRef(true);

  useEffect(() => {
    document.title = screen ? `${screen.title} · HoloDeck` : "HoloDeck";
    // Keyboard and screen reader start at the new screen; not at the first, where the page itself is announced.
    if (!isFirst.current) main.current?.focus();
    isFirst.current = false;
  }, [screen]);

  // A key is another caller than the person that is logged in.
  const changes = keyChanges.value;
  useEffect(() => void readPerson(), [changes]);

  return (
    <>
      {/* Not a link: its hash would be taken for a route. */}
      <button type="button" class="skip-link" onClick={() => main.current?.focus()}>
        Skip to content
      </button>
      <header class="top">
        <a class="brand" href={`#/${SCREENS[0].name}`}>
          HoloDeck
        </a>
        <nav aria-label="Screens">
          <ul>
            {SCREENS.filter((each) => each.isListed !== false).map((each) => (
              <li key={each.name}>
                <a href={`#/${each.name}`} {...(each === screen ? { "aria-current": "page" as const } : {})}>
                  {each.title}
                </a>
              </li>
            ))}
          </ul>
        </nav>
        <div class="top-tools">
          <ThemeChoice />
          {person.value && (
            <a href="#/account" {...(name === "account" ? { "aria-current": "page" as const } : {})}>
              {person.value.name ?? person.value.id}
            </a>
          )}
          {key.value && (
            <button type="button" class="quiet" onClick={removeKey}>
              Forget key
            </button>
          )}
        </div>
      </header>
      <main ref={main} tabIndex={-1} class="screen">
        {screen ? (
          <LoadedScreen key={screen.name} load={screen.load} segments={segments} query={route.value.query} />
        ) : (
          <div class="empty">
            <h1>There is no such screen</h1>
            <p>
              Go to the <a href={`#/${SCREENS[0].name}`}>{SCREENS[0].title.toLowerCase()}</a>.
            </p>
          </div>
        )}
      </main>
      <KeyDialog />
    </>
  );
}

interface LoadedScreenProps extends ScreenProps {
  load: () => Promise<ComponentType<ScreenProps>>;
}

function LoadedScreen({ load, ...props }: LoadedScreenProps) {
  const loaded = useSignal<ComponentType<ScreenProps> | null>(null);
  const failure = useSignal("");

  useEffect(() => {
    load().then(
      (component) => (loaded.value = component),
      () => (failure.value = "This part of the console could not be loaded. Load the page again."),
    );
  }, [load, loaded, failure]);

  if (failure.value) return <p role="alert">{failure.value}</p>;
  const Component = loaded.value;
  // A new key is a new reader: nothing of the last one stays on the screen.
  return Component ? <Component key={keyChanges.value} {...props} /> : <p class="hint">Loading…</p>;
}

function ThemeChoice() {
  return (
    <label class="theme-choice">
      <span class="visually-hidden">Colours</span>
      <select value={theme.value} onChange={(event) => (theme.value = event.currentTarget.value as Theme)}>
        {THEMES.map((each) => (
          <option key={each} value={each}>
            {each === "system" ? "System" : each === "light" ? "Light" : "Dark"}
          </option>
        ))}
      </select>
    </label>
  );
}
