/** Loads the picture of a frame: about, from the numbers of elements in chunks, and then exactly. */

import { useCallback, useEffect, useState } from 'react';
import { untilAnswered } from '../api/client';
import type { Domain, HdfObject } from '../api/hdf';
import { numberType } from '../api/types';
import { extentOf, formatSelect } from '../api/values';
import { type Density, type DensityOptions, type Frame, joined, readDensity, totalOf } from './density';

/** The most elements that are read for one picture; where there are more, the picture is made of chunks. */
export const MAX_ELEMENTS = 10_000_000;
/** Chunks that are counted for a first picture; each next request counts twice as many, up to the last number. */
const CHUNKS = [1_000, 64_000] as const;
/** Bins down and right: about what a window has in pixels, and half a megabyte of counts. */
const PIXELS: [number, number] = [320, 400];

export interface Picture {
  density: Density | undefined;
  error: unknown;
  /** Whether a better picture is on its way. */
  loading: boolean;
  /** Asks again, and shows the last picture meanwhile. */
  reload: () => void;
}

function isInside(frame: Frame, other: Frame): boolean {
  return frame.box.every((span, dim) => {
    const around = other.box[dim];
    return around !== undefined && span.start >= around.start && span.stop <= around.stop;
  });
}

/** Returns the picture of all chunks in a frame; `onPart` is given that of those counted so far. */
async function countChunks(
  domain: Domain,
  dataset: HdfObject,
  frame: Frame,
  options: Omit<DensityOptions, 'approximate' | 'page'>,
  onPart: (part: Density) => void,
): Promise<Density> {
  const [first, most] = CHUNKS;
  const read = (limit: number, marker: string | undefined) => readDensity(domain, dataset, frame, { ...options, approximate: true, page: { limit, marker } });
  let found = await read(first, undefined);
  for (let limit = 2 * first; found.marker !== undefined; limit = Math.min(2 * limit, most)) {
    onPart(found);
    found = joined(found, await read(limit, found.marker));
  }
  return found;
}

/**
 * Returns the picture of a frame. The last one stays until the next one is there. The elements in the frame are known
 * of a picture of chunks; of a frame inside an exact one there are no more, so zooming in asks for elements at once.
 */
export function usePicture(domain: Domain, dataset: HdfObject, frame: Frame): Picture {
  const [state, setState] = useState<Omit<Picture, 'reload'>>({ density: undefined, error: undefined, loading: true });
  const [attempt, setAttempt] = useState(0);
  const key = `${dataset.id} ${formatSelect(extentOf(dataset))} ${formatSelect(frame.box)} ${frame.rows} ${frame.columns}`;
  useEffect(() => {
    const abort = new AbortController();
    const options = { withValues: numberType(dataset.type ?? '') !== undefined, pixels: PIXELS, signal: abort.signal };
    const show = (density: Density, loading: boolean) => {
      if (!abort.signal.aborted) setState({ density, error: undefined, loading });
    };
    const load = async () => {
      setState((old) => ({ ...old, loading: true }));
      const last = state.density;
      const isKnown = last !== undefined && !last.approximate && isInside(frame, last.frame);
      if (!isKnown) {
        // An exact picture stays until the next one: while it is moved it is not to flicker.
        const isOpen = last === undefined || last.approximate;
        const about = await countChunks(domain, dataset, frame, options, (part) => isOpen && show(part, true));
        const isMuch = totalOf(about) > MAX_ELEMENTS;
        if (isMuch || isOpen) show(about, !isMuch);
        if (isMuch) return;
      }
      show(await readDensity(domain, dataset, frame, { ...options, approximate: false }), false);
    };
    const fail = (error: unknown) => {
      if (!abort.signal.aborted) setState((old) => ({ ...old, error, loading: false }));
    };
    untilAnswered(load, abort.signal, fail).catch(fail);
    return () => abort.abort();
    // eslint-disable-next-line react-hooks/exhaustive-deps -- the key stands for dataset and frame
  }, [domain, key, attempt]);
  const reload = useCallback(() => setAttempt((count) => count + 1), []);
  return { ...state, reload };
}
