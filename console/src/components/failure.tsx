/** Why something is not shown, in the words of the gateway. A key that may not see it is no fault of the page. */
import { APIError } from "../api/client";

export function Failure({ error }: { error: Error }) {
  if (error instanceof APIError && error.status === 403) {
    return (
      <div class="empty">
        <h2>This needs an operator's key</h2>
        <p>{error.message}</p>
        <p>
          Forget the key of this tab and enter that of an operator, or ask one. Operators have <code>admin: true</code>{" "}
          in the gateway's file.
        </p>
      </div>
    );
  }
  return (
    <p class="alert" role="alert">
      {error.message}
    </p>
  );
}
