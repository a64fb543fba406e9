/** The default plot of a group, by NeXus's rules: the attribute `default`, NXdata, and its signal. */

import { attributeText, collectionOf, type Domain, type HdfObject } from '../api/hdf';

/** How many groups lead to a plot at most. */
const MAX_STEPS = 16;
/** Classes of groups that have a plot, or lead to one without being named by `default`: the first ones first. */
const CLASSES = ['NXdata', 'NXentry', 'NXprocess'];

export interface DefaultPlot {
  /** Where the signal is to be. */
  path: string;
  /** The dataset of the signal; undefined if there is none. */
  signal: HdfObject | undefined;
}

/** Returns the plot that a group or what it names has, undefined if it has none. */
export function findPlot(domain: Domain, path: string): DefaultPlot | undefined {
  let at = path;
  for (let step = 0; step < MAX_STEPS; step += 1) {
    const object = domain.resolve(at);
    if (object === undefined || collectionOf(object) === 'datasets') return { path: at, signal: object };
    const signal = attributeText(object, 'NX_class') === 'NXdata' ? signalOf(domain, object, at) : undefined;
    if (signal !== undefined) return plotAt(domain, below(at, signal));
    const next = attributeText(object, 'default') ?? leadingChild(domain, object, at);
    if (next === undefined) return undefined;
    at = next.startsWith('/') ? next : below(at, next);
  }
  return undefined;
}

function plotAt(domain: Domain, path: string): DefaultPlot {
  const found = domain.resolve(path);
  return { path, signal: found !== undefined && collectionOf(found) === 'datasets' ? found : undefined };
}

/** Returns the name of the signal: what the group says, or the child that says of itself that it is one. */
function signalOf(domain: Domain, group: HdfObject, path: string): string | undefined {
  const named = attributeText(group, 'signal');
  if (named !== undefined) return named;
  const links = Object.entries(group.links ?? {});
  return links.find(([, link]) => domain.target(link, path)?.attributes?.['signal'] !== undefined)?.[0];
}

/** Returns the name of the child to look into where there is no `default`. */
function leadingChild(domain: Domain, group: HdfObject, path: string): string | undefined {
  const children = Object.entries(group.links ?? {}).map(([name, link]) => [name, attributeText(domain.target(link, path), 'NX_class')] as const);
  for (const wanted of CLASSES) {
    const found = children.find(([, kind]) => kind === wanted);
    if (found !== undefined) return found[0];
  }
  return undefined;
}

function below(path: string, name: string): string {
  return path === '/' ? `/${name}` : `${path}/${name}`;
}
