/** Says how long it is until a time, second by second. Screen readers hear it when they come by, not each second. */
import { useEffect, useState } from "preact/hooks";
import { formatSeconds } from "../../components/format";

export function Countdown({ until }: { until: number }) {
  const [now, setNow] = useState(Date.now() / 1000);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now() / 1000), 1000);
    return () => clearInterval(timer);
  }, []);
  const seconds = Math.ceil(until - now);
  return (
    <p role="timer">
      {seconds > 0 ? `The next try is in ${seconds < 60 ? `${seconds} s` : formatSeconds(seconds)}.` : "Trying again…"}
    </p>
  );
}
