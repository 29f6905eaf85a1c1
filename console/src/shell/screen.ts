/**
 * What a screen is. To add one: write `screens/NAME/NAME-screen.tsx` with a component that takes `ScreenProps`, and add
 * a row to `SCREENS` in `screens/registry.ts`. Its code is loaded when it is first shown.
 */
import type { ComponentType } from "preact";

export interface ScreenProps {
  /** The parts of the route after the name of the screen: `["resp_x"]` of `#/runs/resp_x`. */
  segments: readonly string[];
  query: URLSearchParams;
}

export interface Screen {
  /** The first part of its route. */
  name: string;
  title: string;
  /** Whether the navigation lists it; absent: it does. */
  isListed?: boolean;
  load: () => Promise<ComponentType<ScreenProps>>;
}
