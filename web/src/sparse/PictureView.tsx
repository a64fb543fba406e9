/** A sparse dataset as a picture: values with undefined as a colour of its own, or where its elements are. */

import { useEffect, useMemo, useState } from 'react';
import { type Address, replaceAddress } from '../address';
import { type AxisLabels, labelsOf } from '../anndata/anndata';
import { canGrow, type Domain, dimsOf, type HdfObject } from '../api/hdf';
import { numberType } from '../api/types';
import { extentOf, formatSelect, parseSelect, type Span } from '../api/values';
import { SelectionField, SelectionNotice } from '../object/SelectionField';
import { ErrorNotice } from '../shell/ErrorNotice';
import { formatCount, formatNumber } from '../shell/format';
import type { Range } from './colours';
import { columnSpan, type Frame, rowSpan, totalOf } from './density';
import { isValid, type Kind, moved, type ScaleChoice, scaleOf, zoomed } from './drawing';
import { Legend } from './Legend';
import { Plot } from './Plot';
import { MAX_ELEMENTS, usePicture } from './usePicture';

interface Props {
  domain: Domain;
  object: HdfObject;
  address: Address;
  /** Whether the last place of a dimension that grows is followed. */
  live: boolean;
}

export function PictureView({ domain, object, address, live }: Props) {
  const dims = dimsOf(object);
  if (dims.some((length) => length === 0)) return <p className="notice">The dataset has no places yet.</p>;
  return <Picture key={object.id} domain={domain} object={object} address={address} live={live} />;
}

/** Returns the frame of a selection, by default of all places in the last two dimensions, at the first place of others. */
export function frameOf(extent: Span[], select: string | undefined): Frame {
  const rank = extent.length;
  const chosen = parseSelect(select, extent)?.map((span): Span => ({ ...span, step: 1 }));
  const box = (chosen ?? extent).map((span, dim) =>
    dim < rank - 2 && span.stop - span.start > 1 ? { ...span, stop: span.start + 1 } : span,
  );
  return { box, rows: rank > 1 ? rank - 2 : undefined, columns: rank - 1 };
}

function Picture({ domain, object, address, live }: Props) {
  const dims = dimsOf(object);
  const extent = extentOf(object);
  const hasValues = numberType(object.type ?? '') !== undefined;
  const [kind, setKind] = useState<Kind>(hasValues ? 'values' : 'density');
  const chosen = parseSelect(address.select, extent);
  const frame = frameOf(extent, address.select);
  const picture = usePicture(domain, object, frame);
  const labels: AxisLabels | undefined = labelsOf(domain, address.path);
  const show = (next: Frame) => replaceAddress({ ...address, select: formatSelect(next.box) });
  useEffect(() => {
    if (!live) return;
    const box = frame.box.map((span, dim) => {
      const last = (extent[dim]?.stop ?? 1) - 1;
      return dim < dims.length - 2 && canGrow(object, dim) ? { start: last, stop: last + 1, step: 1 } : span;
    });
    if (formatSelect(box) !== formatSelect(frame.box)) show({ ...frame, box });
    // eslint-disable-next-line react-hooks/exhaustive-deps -- another place may be looked at until there is a new one
  }, [live, formatSelect(extent)]);
  const showAll = () => show(frameOf(extent, formatSelect(frame.box.map((span, dim) => (dim < dims.length - 2 ? span : (extent[dim] ?? span))))));
  const { density } = picture;
  const shown: Kind = density?.values === undefined ? 'density' : kind;
  const [choice, setChoice] = useState<ScaleChoice>({ isLog: false });
  const [isSquare, setIsSquare] = useState(isSquareByDefault(dims));
  const scale = useMemo(() => (density === undefined ? undefined : scaleOf(density, shown, choice)), [density, shown, choice]);
  return (
    <section aria-label="Picture" className="picture">
      <div className="bar">
        {hasValues && (
          <label>
            Show{' '}
            <select value={kind} onChange={(event) => setKind(event.target.value as Kind)}>
              <option value="values">values</option>
              <option value="density">where elements are</option>
            </select>
          </label>
        )}
        {shown === 'values' && <ScaleFields choice={choice} range={scale?.range} onChange={setChoice} />}
        <label>
          <input type="checkbox" checked={isSquare} onChange={(event) => setIsSquare(event.target.checked)} /> Keep ratio
        </label>
        <button onClick={() => show(zoomed(frame, extent, 0.5))}>Zoom in</button>
        <button onClick={() => show(zoomed(frame, extent, 2))}>Zoom out</button>
        <button onClick={showAll}>Fit</button>
        {extent.slice(0, -2).map((whole, dim) => (
          <PlaceField key={dim} dim={dim} whole={whole} at={frame.box[dim]?.start ?? whole.start} onChange={(at) => show({ ...frame, box: frame.box.map((span, one) => (one === dim ? { start: at, stop: at + 1, step: 1 } : span)) })} />
        ))}
      </div>
      <SelectionField
        key={formatSelect(frame.box)}
        text={formatSelect(frame.box)}
        extent={extent}
        onSelect={(text) => show(frameOf(extent, text))}
      />
      <SelectionNotice select={address.select} extent={extent} />
      {chosen !== undefined && formatSelect(chosen) !== formatSelect(frame.box) && (
        <p className="notice">A picture has all rows and columns in a box, at one place of other dimensions: not all of {address.select}.</p>
      )}
      {picture.error !== undefined && <ErrorNotice error={picture.error} retry={picture.reload} />}
      {density !== undefined && scale !== undefined && (
        <>
          <Legend kind={shown} scale={scale} bin={density.bin} />
          <Plot
            density={density}
            scale={scale}
            isSquare={isSquare}
            dims={dims}
            labels={labels}
            domain={domain}
            onMove={(down, right) => show(moved(frame, extent, down, right))}
            onZoom={(factor, about) => show(zoomed(frame, extent, factor, about))}
          />
          <p role="status" className="quiet" data-loading={picture.loading}>
            {density.marker !== undefined ? 'So far, about ' : density.approximate ? 'About ' : ''}
            {formatCount(Math.round(totalOf(density)))} defined elements in rows {spanText(rowSpan(density.frame))} and columns{' '}
            {spanText(columnSpan(density.frame))}.
            {density.approximate && !picture.loading && ` Counted by chunks: below ${formatCount(MAX_ELEMENTS)} elements each is drawn. Zoom in.`}
            {picture.loading && ' Loading…'}
          </p>
        </>
      )}
    </section>
  );
}

/** The most that an extent may be longer than wide, or wider than long, for its places to be squares from the start. */
const MAX_RATIO = 8;

function isSquareByDefault(dims: number[]): boolean {
  const [rows, columns] = [dims.at(-2) ?? 1, dims.at(-1) ?? 1];
  return Math.max(rows / columns, columns / rows) <= MAX_RATIO;
}

interface ScaleProps {
  choice: ScaleChoice;
  /** The range of the scale now. */
  range: Range | undefined;
  onChange: (choice: ScaleChoice) => void;
}

/** Whether the scale has logarithms, and its limits, which are those of the values until others are typed. */
function ScaleFields({ choice, range, onChange }: ScaleProps) {
  return (
    <>
      <label>
        Scale{' '}
        <select value={choice.isLog ? 'log' : 'linear'} onChange={(event) => onChange({ ...choice, isLog: event.target.value === 'log' })}>
          <option>linear</option>
          <option>log</option>
        </select>
      </label>
      {(['low', 'high'] as const).map((limit) => (
        <label key={limit}>
          {limit === 'low' ? 'Min' : 'Max'}{' '}
          <input
            className="limit"
            type="number"
            step="any"
            placeholder={range === undefined ? '' : formatNumber(range[limit])}
            value={choice[limit] ?? ''}
            aria-invalid={!isValid(choice)}
            onChange={(event) => onChange({ ...choice, [limit]: event.target.value === '' ? undefined : event.target.valueAsNumber })}
          />
        </label>
      ))}
    </>
  );
}

function spanText(span: Span): string {
  return `${formatCount(span.start)} to ${formatCount(span.stop - 1)}`;
}

interface PlaceProps {
  dim: number;
  whole: Span;
  at: number;
  onChange: (at: number) => void;
}

/** A place in a dimension that the picture does not show. */
function PlaceField({ dim, whole, at, onChange }: PlaceProps) {
  return (
    <label>
      Dimension {dim}{' '}
      <input
        type="number"
        min={whole.start}
        max={whole.stop - 1}
        value={at}
        onChange={(event) => {
          const next = event.target.valueAsNumber;
          if (Number.isInteger(next) && next >= whole.start && next < whole.stop) onChange(next);
        }}
      />
    </label>
  );
}
