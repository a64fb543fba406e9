/** Mends for screen readers what packages that draw by themselves leave out, whenever they draw. */

/** Calls `mend` with what is below `root`, now and after each change; returns what ends that. */
function mendAlways(root: HTMLElement, attributes: string[], mend: (root: HTMLElement) => void): () => void {
  mend(root);
  const observer = new MutationObserver(() => mend(root));
  observer.observe(root, { subtree: true, childList: true, attributeFilter: attributes });
  return () => observer.disconnect();
}

/** H5Web says `aria-checked` of what it calls tabs (WAI-ARIA 1.2, section 5.4: a tab is selected, not checked). */
export function mendH5Web(root: HTMLElement): () => void {
  return mendAlways(root, ['aria-checked'], () => {
    for (const tab of root.querySelectorAll('[role=tab][aria-checked]')) {
      tab.setAttribute('aria-selected', tab.getAttribute('aria-checked') ?? 'false');
      tab.removeAttribute('aria-checked');
    }
  });
}

/** The levels of Swagger UI's headings below that of the page. */
const LEVELS: [string, string][] = [
  ['h3.opblock-tag', '2'],
  ['.models > h4', '2'],
  ['h4.opblock-title', '3'],
];

/** What is beside its main part. */
const REGIONS: [string, string][] = [
  ['.information-container', 'About'],
  ['.schemes-server-container', 'Server'],
];

/** Swagger UI leaves lists of choices, tables and parts of the page without names, and skips levels of headings. */
export function mendSwagger(root: HTMLElement): () => void {
  return mendAlways(root, [], () => {
    for (const select of root.querySelectorAll('select:not([aria-label])')) {
      const parameter = select.closest<HTMLElement>('tr[data-param-name]')?.dataset['paramName'];
      select.setAttribute('aria-label', parameter ?? (select.id === 'servers' ? 'Server' : 'Media type'));
    }
    for (const table of root.querySelectorAll('table.responses-table:not([aria-label])')) {
      table.setAttribute('aria-label', `Answers: ${table.id}`);
    }
    for (const [selector, level] of LEVELS) {
      for (const heading of root.querySelectorAll(`${selector}:not([aria-level])`)) {
        heading.setAttribute('role', 'heading');
        heading.setAttribute('aria-level', level);
      }
    }
    for (const [selector, name] of REGIONS) {
      for (const region of root.querySelectorAll(`${selector}:not([role])`)) {
        region.setAttribute('role', 'region');
        region.setAttribute('aria-label', name);
      }
    }
    for (const text of root.querySelectorAll('pre:not([tabindex])')) text.setAttribute('tabindex', '0');
  });
}
