/** The canvas of a picture, with the counts of its rows and columns beside it; moved by mouse, wheel or keys. */

import { type CSSProperties, type KeyboardEvent, type PointerEvent, useEffect, useRef, useState } from 'react';
import { type AxisLabels, nameAt } from '../anndata/anndata';
import type { Domain } from '../api/hdf';
import { formatCount, formatNumber } from '../shell/format';
import { columnSpan, type Density, marginsOf, rowSpan } from './density';
import { draw, drawMargin, type Scale } from './drawing';

interface Props {
  density: Density;
  scale: Scale;
  /** Whether all places are squares. */
  isSquare: boolean;
  dims: number[];
  labels: AxisLabels | undefined;
  domain: Domain;
  /** Asks for a picture moved by parts of the height and the width. */
  onMove: (down: number, right: number) => void;
  /** Asks for one zoomed about a point. */
  onZoom: (factor: number, about: [number, number]) => void;
}

const STEP = 0.2;
const KEYS: Record<string, [number, number]> = {
  ArrowUp: [-STEP, 0],
  ArrowDown: [STEP, 0],
  ArrowLeft: [0, -STEP],
  ArrowRight: [0, STEP],
};

export function Plot({ density, scale, isSquare, labels, domain, onMove, onZoom }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const rows = useRef<HTMLCanvasElement>(null);
  const columns = useRef<HTMLCanvasElement>(null);
  const drag = useRef<[number, number]>();
  const zoom = useRef(onZoom);
  zoom.current = onZoom;
  const [at, setAt] = useState<[number, number]>();
  useEffect(() => {
    const margins = marginsOf(density);
    if (canvas.current !== null) draw(canvas.current, density, scale);
    if (rows.current !== null) drawMargin(rows.current, margins.rows, false);
    if (columns.current !== null) drawMargin(columns.current, margins.columns, true);
  }, [density, scale]);
  const ratio = (density.width * density.bin[1]) / Math.max(1, density.height * density.bin[0]);
  const sides = { '--ratio': ratio } as CSSProperties;
  useEffect(() => {
    const element = canvas.current;
    // React's own listeners may not keep the page from scrolling.
    const onWheel = (event: WheelEvent) => {
      event.preventDefault();
      zoom.current(event.deltaY > 0 ? 1.25 : 0.8, partsOf(event));
    };
    element?.addEventListener('wheel', onWheel, { passive: false });
    return () => element?.removeEventListener('wheel', onWheel);
  }, []);
  const onKey = (event: KeyboardEvent) => {
    const step = KEYS[event.key];
    if (step !== undefined) onMove(...step);
    else if (event.key === '+') onZoom(0.5, [0.5, 0.5]);
    else if (event.key === '-') onZoom(2, [0.5, 0.5]);
    else return;
    event.preventDefault();
  };
  const onPointer = (event: PointerEvent<HTMLCanvasElement>) => {
    const parts = partsOf(event.nativeEvent);
    setAt([Math.min(density.height - 1, Math.floor(parts[0] * density.height)), Math.min(density.width - 1, Math.floor(parts[1] * density.width))]);
    if (drag.current === undefined || event.buttons === 0) return;
    const [down, right] = [drag.current[0] - parts[0], drag.current[1] - parts[1]];
    if (Math.abs(down) < 0.02 && Math.abs(right) < 0.02) return;
    drag.current = parts;
    onMove(down, right);
  };
  return (
    <>
      <div className={isSquare ? 'plot square' : 'plot'} style={sides}>
        <canvas ref={columns} className="columnCounts" aria-hidden="true" />
        <canvas ref={rows} className="rowCounts" aria-hidden="true" />
        <canvas
          ref={canvas}
          className="main"
          tabIndex={0}
          role="img"
          aria-label={`Picture of ${formatCount(density.height)} by ${formatCount(density.width)} pixels. Arrow keys move it, plus and minus zoom.`}
          onKeyDown={onKey}
          onPointerDown={(event) => {
            event.currentTarget.setPointerCapture(event.pointerId);
            drag.current = partsOf(event.nativeEvent);
          }}
          onPointerUp={() => (drag.current = undefined)}
          onPointerMove={onPointer}
          onPointerLeave={() => setAt(undefined)}
        />
      </div>
      <p className="pointed" aria-live="off">
        {at === undefined ? '\u00a0' : <Pointed density={density} at={at} labels={labels} domain={domain} />}
      </p>
    </>
  );
}

/** Returns where in an element a pointer is, as parts of its height and width. */
function partsOf(event: MouseEvent): [number, number] {
  const element = event.target as HTMLElement;
  return [event.offsetY / Math.max(1, element.clientHeight), event.offsetX / Math.max(1, element.clientWidth)];
}

interface PointedProps {
  density: Density;
  at: [number, number];
  labels: AxisLabels | undefined;
  domain: Domain;
}

/** The place under the pointer, and what is there. */
function Pointed({ density, at, labels, domain }: PointedProps) {
  const row = rowSpan(density.frame).start + at[0] * density.bin[0];
  const column = columnSpan(density.frame).start + at[1] * density.bin[1];
  const bin = at[0] * density.width + at[1];
  const count = density.counts[bin] ?? 0;
  const isOne = density.bin[0] * density.bin[1] === 1;
  const value = density.values?.[bin];
  const what =
    count === 0
      ? 'undefined'
      : `${value === undefined ? '' : formatNumber(value)}${isOne ? '' : ` (${formatCount(Math.round(count))} elements)`}`;
  return (
    <>
      row {formatCount(row)} {isOne && <Name label={labels?.rows} place={row} domain={domain} />}, column {formatCount(column)}{' '}
      {isOne && <Name label={labels?.columns} place={column} domain={domain} />}: <strong>{what}</strong>
    </>
  );
}

function Name({ label, place, domain }: { label: AxisLabels['rows'] | undefined; place: number; domain: Domain }) {
  const [name, setName] = useState('');
  useEffect(() => {
    let wanted = true;
    if (label !== undefined) void nameAt(domain, label, place).then((found) => wanted && setName(found));
    return () => {
      wanted = false;
    };
  }, [domain, label, place]);
  return <>{name}</>;
}
