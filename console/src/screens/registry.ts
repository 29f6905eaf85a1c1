/** Every screen, in the order of the navigation. The first one is shown at `/`. */
import type { Screen } from "../shell/screen";

export const SCREENS: readonly [Screen, ...Screen[]] = [
  {
    name: "playground",
    title: "Playground",
    load: async () => (await import("./playground/playground-screen")).PlaygroundScreen,
  },
  {
    name: "runs",
    title: "Runs",
    load: async () => (await import("./runs/runs-screen")).RunsScreen,
  },
  {
    name: "servers",
    title: "Servers",
    load: async () => (await import("./servers/servers-screen")).ServersScreen,
  },
  {
    name: "usage",
    title: "Usage",
    load: async () => (await import("./usage/usage-screen")).UsageScreen,
  },
  {
    name: "keys",
    title: "Keys",
    load: async () => (await import("./keys/keys-screen")).KeysScreen,
  },
  {
    name: "configuration",
    title: "Configuration",
    load: async () => (await import("./configuration/configuration-screen")).ConfigurationScreen,
  },
  {
    name: "api",
    title: "API",
    load: async () => (await import("./api/api-screen")).APIScreen,
  },
  {
    name: "account",
    title: "Account",
    // The name of the caller leads to it.
    isListed: false,
    load: async () => (await import("./account/account-screen")).AccountScreen,
  },
];
