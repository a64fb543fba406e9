/** A table of any number of rows in a box that scrolls: only the blocks of rows in and near the view are drawn. */

import { type KeyboardEvent, type ReactElement, type ReactNode, type RefObject, useEffect, useLayoutEffect, useRef, useState } from 'react';

/** Rows of a block, pixels of a row that was never drawn, and how far from the view blocks are drawn. */
const BLOCK = 50;
const ROW = 27;
const NEAR = '600px 0px';

/** What a row needs as properties of its `tr`. */
export interface RowPlace {
  key: string;
  'aria-rowindex': number;
  'data-row': number;
}

interface Props<T> {
  label: string;
  /** The row of the head. */
  head: ReactElement;
  items: T[];
  keyOf: (item: T) => string;
  row: (item: T, place: RowPlace) => ReactNode;
  /** Whether there are no more items than these. */
  isWhole?: boolean;
  /** Is told whether the end of the table is near the view. */
  onEnd?: (isNear: boolean) => void;
}

export function LongTable<T>({ label, head, items, keyOf, row, isWhole = true, onEnd }: Props<T>) {
  const box = useRef<HTMLDivElement>(null);
  // The row that keys have moved to: its block stays drawn.
  const [wanted, setWanted] = useState<{ at: number }>();
  useLayoutEffect(() => {
    if (wanted !== undefined) box.current?.querySelector<HTMLElement>(`tr[data-row="${wanted.at}"] a`)?.focus();
  }, [wanted]);
  const onKey = (event: KeyboardEvent) => {
    const { target, key } = event;
    const at = target instanceof HTMLAnchorElement ? Number(target.closest('tr')?.dataset['row'] ?? NaN) : NaN;
    const move = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[key];
    if (move === undefined || Number.isNaN(at) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    if (move >= 0 && move < items.length) setWanted({ at: move });
  };
  const blocks = Array.from({ length: Math.ceil(items.length / BLOCK) }, (_, block) => block);
  return (
    <div className="scroll" tabIndex={0} role="group" aria-label={label} ref={box}>
      <table aria-rowcount={isWhole ? items.length + 1 : -1} onKeyDown={onKey}>
        <thead>{head}</thead>
        {blocks.map((block) => {
          const first = block * BLOCK;
          const count = Math.min(BLOCK, items.length - first);
          const isWanted = wanted !== undefined && wanted.at >= first && wanted.at < first + count;
          return (
            <Block key={block} box={box} rows={count} isFirst={block === 0} isWanted={isWanted}>
              {() => items.slice(first, first + count).map((item, at) => row(item, { key: keyOf(item), 'aria-rowindex': first + at + 2, 'data-row': first + at }))}
            </Block>
          );
        })}
      </table>
      {onEnd !== undefined && <End key={items.length} box={box} tell={onEnd} />}
    </div>
  );
}

interface BlockProps {
  box: RefObject<HTMLElement>;
  rows: number;
  /** Whether it is drawn before anything is known of the view. */
  isFirst: boolean;
  /** Whether one of its rows is to have the focus. */
  isWanted: boolean;
  children: () => ReactNode;
}

/** Some rows, or while they are far from the view the room that they take. A row with the focus stays. */
function Block({ box, rows, isFirst, isWanted, children }: BlockProps) {
  const body = useRef<HTMLTableSectionElement>(null);
  const [height, setHeight] = useState(isFirst ? undefined : rows * ROW);
  useEffect(
    () =>
      observe(box.current, body.current, (isNear, seen) => {
        if (isNear) setHeight(undefined);
        else if (!seen.target.contains(document.activeElement)) setHeight((old) => old ?? seen.boundingClientRect.height);
      }),
    [box],
  );
  if (height === undefined || isWanted) return <tbody ref={body}>{children()}</tbody>;
  return (
    <tbody ref={body} className="unseen">
      <tr aria-hidden="true">
        <td style={{ height }} />
      </tr>
    </tbody>
  );
}

/** The end of the table, seen anew after each change of the number of rows. */
function End({ box, tell }: { box: RefObject<HTMLElement>; tell: (isNear: boolean) => void }) {
  const end = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const stop = observe(box.current, end.current, tell);
    return () => {
      stop();
      tell(false);
    };
    // eslint-disable-next-line react-hooks/exhaustive-deps -- the same for one number of rows
  }, []);
  return <div ref={end} />;
}

/** Calls `tell` when an element comes near the view of the box, or leaves it; returns what ends that. */
function observe(box: Element | null, element: Element | null, tell: (isNear: boolean, seen: IntersectionObserverEntry) => void): () => void {
  if (element === null) return () => undefined;
  const observer = new IntersectionObserver(
    (entries) => {
      const seen = entries.at(-1);
      if (seen !== undefined) tell(seen.isIntersecting, seen);
    },
    { root: box, rootMargin: NEAR },
  );
  observer.observe(element);
  return () => observer.disconnect();
}
