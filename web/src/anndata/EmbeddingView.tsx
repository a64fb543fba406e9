/** An embedding of cells as a scatter plot, coloured by a column of the cells or by a gene. */

import { useEffect, useRef, useState } from 'react';
import { type Address, replaceAddress } from '../address';
import type { Domain } from '../api/hdf';
import { useLoad } from '../api/load';
import { ErrorNotice } from '../shell/ErrorNotice';
import { formatCount, formatNumber } from '../shell/format';
import { css, UNDEFINED } from '../sparse/colours';
import { type AnnData, findAnnData, readColumn } from './anndata';
import { colourByColumn, colourByGene, type Colouring, drawPoints, readPoints } from './embedding';

const SIZE = 640;
/** The most cells that are drawn: a browser reads and draws them in some seconds. */
const MAX_CELLS = 1_000_000;

export function EmbeddingView({ domain, address }: { domain: Domain; address: Address }) {
  const cells = findAnnData(domain);
  if (cells === undefined || cells.embeddings.length === 0) return <p className="notice">The domain has no embedding.</p>;
  return <Scatter domain={domain} cells={cells} address={address} />;
}

/** What colours the cells, as the address has it: `obs:louvain` or `gene:CST3`. */
function colourName(select: string | undefined, cells: AnnData): string {
  return select ?? `obs:${(cells.columns.find((one) => one.categories !== undefined) ?? cells.columns[0])?.name ?? ''}`;
}

function Scatter({ domain, cells, address }: { domain: Domain; cells: AnnData; address: Address }) {
  const [name, setName] = useState(cells.embeddings[0]?.name ?? '');
  const by = colourName(address.select, cells);
  const canvas = useRef<HTMLCanvasElement>(null);
  const embedding = cells.embeddings.find((one) => one.name === name);
  const count = Math.min(cells.cells.length, MAX_CELLS);
  const id = `${domain.path} ${domain.record.lastModified}`;
  const points = useLoad(embedding === undefined ? undefined : `${id} ${name}`, async (signal) => {
    if (embedding === undefined) throw new Error('No embedding is chosen.');
    return readPoints(domain, embedding, count, signal);
  });
  const genes = useLoad(cells.genes === undefined ? undefined : `${id} genes`, async (signal) =>
    cells.genes === undefined ? [] : Array.from(await readColumn(domain, cells.genes, signal), String),
  );
  const isReady = !by.startsWith('gene:') || genes.value !== undefined;
  const colouring = useLoad(isReady ? `${id} ${by}` : undefined, async (signal): Promise<Colouring> => {
    const wanted = by.slice(by.indexOf(':') + 1);
    if (by.startsWith('gene:')) {
      const gene = (genes.value ?? []).indexOf(wanted);
      if (gene < 0) throw new Error(`There is no gene ${wanted}.`);
      return colourByGene(domain, cells, gene, signal);
    }
    const column = cells.columns.find((one) => one.name === wanted);
    if (column === undefined) throw new Error(`The cells have no column ${wanted}.`);
    return colourByColumn(domain, column, signal);
  });
  useEffect(() => {
    if (canvas.current !== null && points.value !== undefined) drawPoints(canvas.current, points.value, colouring.value);
  }, [points.value, colouring.value]);
  const choose = (next: string) => replaceAddress({ ...address, view: 'embedding', select: next });
  return (
    <section aria-label="Embedding">
      <div className="bar">
        <label>
          Embedding{' '}
          <select value={name} onChange={(event) => setName(event.target.value)}>
            {cells.embeddings.map((one) => (
              <option key={one.name}>{one.name}</option>
            ))}
          </select>
        </label>
        <label>
          Colour by{' '}
          <select value={by.startsWith('obs:') ? by.slice(4) : ''} onChange={(event) => choose(`obs:${event.target.value}`)}>
            {by.startsWith('gene:') && <option value="">gene</option>}
            {cells.columns.map((one) => (
              <option key={one.name}>{one.name}</option>
            ))}
          </select>
        </label>
        {cells.matrix !== undefined && (
          <GeneField key={by} gene={by.startsWith('gene:') ? by.slice(5) : ''} genes={genes.value ?? []} onChoose={(gene) => choose(`gene:${gene}`)} />
        )}
      </div>
      {[points, genes, colouring].map(({ error, reload }, at) => error !== undefined && <ErrorNotice key={at} error={error} retry={reload} />)}
      <div className="scatter">
        <canvas ref={canvas} width={SIZE} height={SIZE} role="img" aria-label={`${name} of ${formatCount(count)} cells, coloured by ${by}`} />
        {colouring.value !== undefined && <Key colouring={colouring.value} />}
      </div>
      <p className="quiet" role="status" data-loading={colouring.loading || points.loading}>
        {formatCount(count)} cells
        {cells.cells.length > count && ` of ${formatCount(cells.cells.length)}`}, coloured by {by.slice(by.indexOf(':') + 1)}
        {(colouring.value?.undefinedCells ?? 0) > 0 && `; undefined in ${formatCount(colouring.value?.undefinedCells ?? 0)}`}
      </p>
    </section>
  );
}

function GeneField({ gene, genes, onChoose }: { gene: string; genes: string[]; onChoose: (gene: string) => void }) {
  const [typed, setTyped] = useState(gene);
  const suggested = genes.filter((one) => one.toLowerCase().startsWith(typed.toLowerCase())).slice(0, 30);
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        onChoose(typed);
      }}
    >
      <label>
        or gene <input list="genes" value={typed} onChange={(event) => setTyped(event.target.value)} spellCheck={false} />
      </label>
      <datalist id="genes">
        {suggested.map((one) => (
          <option key={one} value={one} />
        ))}
      </datalist>{' '}
      <button disabled={!genes.includes(typed)}>Colour</button>
    </form>
  );
}

function Key({ colouring }: { colouring: Colouring }) {
  const list = useRef<HTMLUListElement>(null);
  const entries: [string, readonly [number, number, number]][] = [...colouring.categories];
  if (colouring.undefinedCells > 0) entries.push(['undefined', UNDEFINED]);
  useEffect(() => {
    // Through the DOM, because the page's policy allows no style attributes.
    list.current?.querySelectorAll<HTMLElement>('.swatch').forEach((swatch, at) => {
      swatch.style.backgroundColor = css(entries[at]?.[1] ?? UNDEFINED);
    });
  });
  return (
    <ul className="key" ref={list}>
      {entries.map(([name]) => (
        <li key={name}>
          <span className="swatch" /> {name}
        </li>
      ))}
      {colouring.range !== undefined && (
        <li>
          {formatNumber(colouring.range.low)} (dark) to {formatNumber(colouring.range.high)} (light)
        </li>
      )}
    </ul>
  );
}
