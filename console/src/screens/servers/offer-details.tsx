/** Something that a server offers, in a line that opens. What is inside is made when it is opened. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { textOf } from "./content-view";

interface OfferDetailsProps {
  name: string;
  title?: string | null | undefined;
  about?: string | null | undefined;
  mimeType?: string | undefined;
  badges?: readonly string[];
  children: ComponentChildren;
}

export function OfferDetails({ name, title, about, mimeType, badges = [], children }: OfferDetailsProps) {
  const [isOpen, setIsOpen] = useState(false);
  return (
    <details class="server-tool" onToggle={(event) => setIsOpen(event.currentTarget.open)}>
      <summary>
        <code>{textOf(name)}</code>
        {title && title !== name && <span> {textOf(title)}</span>}
        {mimeType && <span class="hint"> {textOf(mimeType)}</span>}
        {badges.map((badge) => (
          <span key={badge} class="badge neutral">
            {badge}
          </span>
        ))}
        {about && <span class="hint tool-about">{textOf(about)}</span>}
      </summary>
      {isOpen && <div class="tool-body">{children}</div>}
    </details>
  );
}
