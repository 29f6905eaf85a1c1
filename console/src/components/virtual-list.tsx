/**
 * A list of any length of which only the visible rows are in the page. All rows have the same height. One row is
 * selected; arrows, Page keys, Home and End move the selection.
 */
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

// Rows above and below the visible ones, so that fast scrolling shows no gaps.
const OVERSCAN = 8;

export interface VirtualListProps<T> {
  rows: readonly T[];
  rowHeight: number;
  label: string;
  selected: number;
  onSelect: (index: number) => void;
  renderRow: (row: T, index: number) => ComponentChildren;
  /** Stay at the end while rows are added, unless the person has scrolled away. */
  followsEnd?: boolean;
}

let lastId = 0;

export function VirtualList<T>(props: VirtualListProps<T>) {
  const { rows, rowHeight, selected, onSelect, followsEnd = false } = props;
  const box = useRef<HTMLDivElement>(null);
  const [id] = useState(() => `list-${++lastId}`);
  const [view, setView] = useState({ top: 0, height: 600 });
  const isAtEnd = useRef(true);

  const measure = () => {
    const element = box.current;
    if (!element) return;
    isAtEnd.current = element.scrollTop + element.clientHeight >= element.scrollHeight - rowHeight;
    setView({ top: element.scrollTop, height: element.clientHeight });
  };

  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const observer = new ResizeObserver(() => {
      setView({ top: element.scrollTop, height: element.clientHeight });
    });
    observer.observe(element);
    return () => observer.disconnect();
  }, []);

  useLayoutEffect(() => {
    const element = box.current;
    if (element && followsEnd && isAtEnd.current) element.scrollTop = element.scrollHeight;
  }, [rows.length, followsEnd]);

  const select = (index: number) => {
    const next = Math.max(0, Math.min(rows.length - 1, index));
    const element = box.current;
    if (element) {
      const top = next * rowHeight;
      if (top < element.scrollTop) element.scrollTop = top;
      if (top + rowHeight > element.scrollTop + element.clientHeight) {
        element.scrollTop = top + rowHeight - element.clientHeight;
      }
    }
    onSelect(next);
  };

  const onKeyDown = (event: KeyboardEvent) => {
    const page = Math.max(1, Math.floor(view.height / rowHeight) - 1);
    const moves: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page };
    const move = moves[event.key];
    if (move !== undefined) select(selected + move);
    else if (event.key === "Home") select(0);
    else if (event.key === "End") select(rows.length - 1);
    else return;
    event.preventDefault();
  };

  const first = Math.max(0, Math.floor(view.top / rowHeight) - OVERSCAN);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / rowHeight) + OVERSCAN);
  const isShown = selected >= first && selected < last;
  return (
    <div
      ref={box}
      class="virtual-list"
      role="listbox"
      aria-label={props.label}
      tabIndex={0}
      onScroll={measure}
      onKeyDown={onKeyDown}
      {...(isShown ? { "aria-activedescendant": `${id}-${selected}` } : {})}
    >
      <div class="virtual-rows" role="presentation" style={{ height: `${rows.length * rowHeight}px` }}>
        {rows.slice(first, last).map((row, offset) => {
          const index = first + offset;
          return (
            <div
              key={index}
              id={`${id}-${index}`}
              class="virtual-row"
              role="option"
              aria-selected={index === selected}
              aria-setsize={rows.length}
              aria-posinset={index + 1}
              style={{ top: `${index * rowHeight}px`, height: `${rowHeight}px` }}
              onClick={() => onSelect(index)}
            >
              {props.renderRow(row, index)}
            </div>
          );
        })}
      </div>
    </div>
  );
}
