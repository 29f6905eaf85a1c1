/** Why something is not shown, in the words of the gateway. A key that may not see it is no fault of the page. */
import { APIError } from "../api/client";

export function Failure({ error }: { error: Error }) {
  if (error instanceof APIError && error.status === 403) {
    return (
      <div class="empty">
        <h2>Your key may not see this</h2>
        <p>{error.message}</p>
        <p>Forget the key of this tab to enter another one.</p>
      </div>
    );
  }
  return (
    <p class="alert" role="alert">
      {error.message}
    </p>
  );
}
