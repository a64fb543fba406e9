/** The tree of a domain's objects: opened with the mouse or the arrow keys, and searched by name. */

import { type KeyboardEvent, memo, useMemo, useRef, useState } from 'react';
import { goTo, parentOf } from '../address';
import { collectionOf, type Domain, dimsOf, type HdfLink, type HdfObject, isSparse } from '../api/hdf';
import { addressOf, linkText } from '../api/links';

interface Node {
  path: string;
  name: string;
  level: number;
  object: HdfObject | undefined;
  isGroup: boolean;
  /** Without an object: the link, and the path of its group. */
  link?: { to: HdfLink; group: string } | undefined;
}

/** The most rows of a tree; a search finds the others. */
const MAX_ROWS = 2000;
const MAX_DEPTH = 32;

interface Props {
  domain: Domain;
  /** The path of the object that is shown. */
  path: string;
}

/** Drawn again for another object alone, not for each step of a zoom. */
export const Tree = memo(function Tree({ domain, path: shown }: Props) {
  const [toggled, setToggled] = useState<Record<string, boolean>>({});
  const [typed, setTyped] = useState('');
  const list = useRef<HTMLUListElement>(null);
  const isOpen = (path: string) => toggled[path] ?? (path === '/' || isAbove(path, shown));
  const nodes = useMemo(
    () => (typed === '' ? rows(domain, isOpen) : search(domain, typed.toLowerCase())),
    // eslint-disable-next-line react-hooks/exhaustive-deps -- isOpen is made of these
    [domain, typed, toggled, shown],
  );
  const select = (node: Node) => {
    const away = node.object === undefined && node.link !== undefined ? addressOf(domain, node.link.to, node.link.group) : undefined;
    goTo(away ?? { domain: domain.path, bucket: domain.bucket, path: node.path });
    if (node.isGroup && typed === '') setToggled({ ...toggled, [node.path]: true });
  };
  const focused = nodes.some((node) => node.path === shown) ? shown : nodes[0]?.path;
  const onKey = (event: KeyboardEvent, node: Node, at: number) => {
    const move = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: nodes.length - 1 }[event.key];
    if (move !== undefined) focusRow(list.current, move);
    else if (event.key === 'Enter' || event.key === ' ') select(node);
    else if (event.key === 'ArrowRight' && node.isGroup) setToggled({ ...toggled, [node.path]: true });
    else if (event.key === 'ArrowLeft' && node.isGroup && isOpen(node.path)) setToggled({ ...toggled, [node.path]: false });
    else if (event.key === 'ArrowLeft') focusRow(list.current, nodes.findIndex((one) => one.path === parentOf(node.path)));
    else return;
    event.preventDefault();
  };
  return (
    <nav className="tree" aria-label="Objects">
      <input type="search" aria-label="Search objects" placeholder="Search objects" value={typed} onChange={(event) => setTyped(event.target.value)} />
      <ul role="tree" aria-label="Objects of the domain" ref={list}>
        {nodes.map((node, at) => (
          <li
            key={node.path}
            role="treeitem"
            aria-level={node.level + 1}
            aria-selected={node.path === shown}
            aria-expanded={node.isGroup ? isOpen(node.path) : undefined}
            tabIndex={node.path === focused ? 0 : -1}
            className={`level${Math.min(node.level, 12)}`}
            onClick={() => select(node)}
            onKeyDown={(event) => onKey(event, node, at)}
          >
            <span
              className="mark"
              aria-hidden="true"
              onClick={(event) => {
                if (!node.isGroup) return;
                event.stopPropagation();
                setToggled({ ...toggled, [node.path]: !isOpen(node.path) });
              }}
            >
              {node.isGroup ? (isOpen(node.path) ? '▾' : '▸') : ''}
            </span>
            <span className="name">{typed === '' ? node.name : node.path}</span>
            <span className="quiet"> {remark(domain, node)}</span>
          </li>
        ))}
      </ul>
      {nodes.length >= MAX_ROWS && <p className="notice">The first {MAX_ROWS} are listed: search for others.</p>}
    </nav>
  );
});

function focusRow(list: HTMLUListElement | null, at: number): void {
  (list?.children[at] as HTMLElement | undefined)?.focus();
}

function isAbove(path: string, other: string): boolean {
  return other.startsWith(`${path}/`);
}

function remark(domain: Domain, { object, link }: Node): string {
  if (object === undefined) return link === undefined ? '' : linkText(domain, link.to, link.group);
  if (collectionOf(object) !== 'datasets') return collectionOf(object) === 'datatypes' ? 'type' : '';
  const dims = dimsOf(object).join(' × ');
  return isSparse(object) ? `${dims} sparse` : dims;
}

/** Returns the visible rows, depth first; a group that is inside itself is not opened again. */
function rows(domain: Domain, isOpen: (path: string) => boolean): Node[] {
  const found: Node[] = [];
  const visit = (object: HdfObject | undefined, path: string, name: string, level: number, above: HdfObject[], link?: Node['link']) => {
    if (found.length >= MAX_ROWS) return;
    const isGroup = object !== undefined && collectionOf(object) === 'groups' && !above.includes(object);
    found.push({ path, name, level, object, isGroup, link });
    if (!isGroup || level >= MAX_DEPTH || !isOpen(path)) return;
    for (const [child, link] of Object.entries(object.links ?? {})) {
      const below = path === '/' ? `/${child}` : `${path}/${child}`;
      visit(domain.target(link, path), below, child, level + 1, [...above, object], { to: link, group: path });
    }
  };
  visit(domain.root, '/', '/', 0, []);
  return found;
}

/** Returns the objects with a path that contains `text`, each by one path, without the tree around them. */
function search(domain: Domain, text: string): Node[] {
  const found: Node[] = [];
  const seen = new Set<HdfObject>();
  const open = (object: HdfObject, path: string, end: string, matches: boolean): Opened => {
    seen.add(object);
    return { links: Object.entries(object.links ?? {}).values(), path, end: end.slice(-text.length), matches };
  };
  // Groups may be nested deeper than calls can be.
  const above = domain.root === undefined ? [] : [open(domain.root, '', '', false)];
  for (let group = above.at(-1); group !== undefined && found.length < MAX_ROWS; group = above.at(-1)) {
    const next = group.links.next();
    if (next.done) {
      above.pop();
      continue;
    }
    const [name, link] = next.value;
    const path = `${group.path}/${name}`;
    const target = domain.target(link, group.path);
    const end = `${group.end}/${name}`;
    const matches = group.matches || end.toLowerCase().includes(text);
    if (matches) found.push({ path, name, level: 0, object: target, isGroup: false, link: { to: link, group: group.path } });
    if (target !== undefined && !seen.has(target)) above.push(open(target, path, end, matches));
  }
  return found;
}

/**
 * A group whose members are searched: those that are left, and whether its own path has the text. Of the path only the
 * end can have more of it; all paths together can be as long as the square of their number.
 */
interface Opened {
  links: IterableIterator<[string, HdfLink]>;
  path: string;
  end: string;
  matches: boolean;
}
