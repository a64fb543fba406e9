/** The stored chunks of a dataset: how many elements or bytes each has, as a map and a table. */

import { useEffect, useRef, useState } from 'react';
import { sendJson } from '../api/client';
import { type Domain, type HdfObject, placesQuery } from '../api/hdf';
import { useLoad } from '../api/load';
import { extentOf, formatSelect } from '../api/values';
import { ErrorNotice } from '../shell/ErrorNotice';
import { formatBytes, formatCount } from '../shell/format';
import { colourAt, UNDEFINED } from '../sparse/colours';

interface Chunk {
  scaled: number[];
  size: number;
  defined?: number;
}

interface Chunks {
  dims: number[];
  chunks: Chunk[];
  marker?: string;
}

const LIMIT = 10_000;
const LISTED = 200;
const MOST_PIXELS = 1 << 20;

export function ChunksView({ domain, object }: { domain: Domain; object: HdfObject }) {
  const extent = extentOf(object);
  const key = `${object.id} ${formatSelect(extent)}`;
  const found = useLoad(key, (signal) =>
    sendJson<Chunks>(`/datasets/${object.id}/chunks`, { ...placesQuery(domain, object), limit: LIMIT }, { signal }),
  );
  const [by, setBy] = useState<'defined' | 'size'>('defined');
  if (found.error !== undefined && found.value === undefined) return <ErrorNotice error={found.error} retry={found.reload} />;
  if (found.value === undefined) return <p className="notice">Loading…</p>;
  const { chunks, dims, marker } = found.value;
  const first = dims.map((length, dim) => Math.floor((extent[dim]?.start ?? 0) / length));
  const bytes = chunks.reduce((sum, chunk) => sum + chunk.size, 0);
  const hasCounts = chunks.some((chunk) => chunk.defined !== undefined);
  const amount = (chunk: Chunk) => (by === 'defined' && hasCounts ? (chunk.defined ?? 0) : chunk.size);
  return (
    <section aria-label="Chunks">
      {found.error !== undefined && <ErrorNotice error={found.error} retry={found.reload} />}
      <p>
        {formatCount(chunks.length)} stored chunks of {dims.join(' × ')} places, {formatBytes(bytes)}
        {marker !== undefined && '; there are more'}
      </p>
      {hasCounts && (
        <div className="bar">
          <label>
            Colour{' '}
            <select value={by} onChange={(event) => setBy(event.target.value as typeof by)}>
              <option value="defined">defined elements</option>
              <option value="size">bytes</option>
            </select>
          </label>
        </div>
      )}
      <ChunkMap chunks={chunks} first={first} counts={first.map((at, dim) => Math.ceil((extent[dim]?.stop ?? 0) / (dims[dim] ?? 1)) - at)} amount={amount} />
      <table>
        <thead>
          <tr>
            <th>Chunk</th>
            <th>Bytes</th>
            {hasCounts && <th>Defined elements</th>}
          </tr>
        </thead>
        <tbody>
          {chunks.slice(0, LISTED).map((chunk) => (
            <tr key={chunk.scaled.join('_')}>
              <td>{chunk.scaled.join(', ')}</td>
              <td className="number">{formatCount(chunk.size)}</td>
              {hasCounts && <td className="number">{formatCount(chunk.defined ?? 0)}</td>}
            </tr>
          ))}
        </tbody>
      </table>
      {chunks.length > LISTED && <p className="notice">The first {LISTED} are listed.</p>}
    </section>
  );
}

interface MapProps {
  chunks: Chunk[];
  /** The first chunk of the grid, and how many it has in each dimension. */
  first: number[];
  counts: number[];
  amount: (chunk: Chunk) => number;
}

/** One pixel for each chunk: rows are all dimensions but the last one. */
function ChunkMap({ chunks, first, counts, amount }: MapProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const width = counts[counts.length - 1] ?? 1;
  const height = counts.slice(0, -1).reduce((product, count) => product * count, 1);
  const fits = width * height <= MOST_PIXELS && width > 0 && height > 0;
  useEffect(() => {
    const context = canvas.current?.getContext('2d');
    if (!context) return;
    const image = context.createImageData(width, height);
    for (let at = 0; at < width * height; at += 1) image.data.set([...UNDEFINED, 255], 4 * at);
    const most = chunks.reduce((largest, chunk) => Math.max(largest, amount(chunk)), 1);
    for (const chunk of chunks) {
      const at = chunk.scaled.reduce((sum, place, dim) => sum * (counts[dim] ?? 1) + place - (first[dim] ?? 0), 0);
      image.data.set([...colourAt(Math.log1p(amount(chunk)) / Math.log1p(most)), 255], 4 * at);
    }
    context.putImageData(image, 0, 0);
  });
  if (!fits) return <p className="notice">The grid of chunks is too large for a map.</p>;
  return <canvas ref={canvas} width={width} height={height} className="map" role="img" aria-label="Map of the stored chunks" />;
}
