/** Which rights somebody would lose by a change of an access control list. */

import type { Entries } from '../api/deeds';
import type { Right, Rights } from '../api/rights';

export interface Loss {
  right: Right;
  /** Whether no group can give it: who is in which group is known to the server alone. */
  isSure: boolean;
}

/** Returns what `user`, who has `rights` by `before`, loses of seeing and changing by `after`. */
export function lossesOf(user: string, rights: Rights, before: Entries, after: Entries): Loss[] {
  const shown: Right[] = ['read', 'readACL', 'updateACL'];
  const found: Loss[] = [];
  for (const right of shown.filter((one) => rights[one])) {
    const kept = decision(user, after, right);
    if (kept === 'given') continue;
    // By a group it is given still, if it was by one and no group lost it.
    const wasByGroup = decision(user, before, right) === 'by a group';
    const groups = groupsWith(before, right).filter((name) => after[name]?.[right] !== true);
    if (kept === 'by a group' && wasByGroup && groups.length === 0) continue;
    found.push({ right, isSure: kept === 'refused' });
  }
  return found;
}

function decision(user: string, entries: Entries, right: Right): 'given' | 'by a group' | 'refused' {
  const own = entries[user];
  if (own !== undefined) return own[right] ? 'given' : 'refused';
  if (entries['default']?.[right] === true) return 'given';
  return groupsWith(entries, right).length > 0 ? 'by a group' : 'refused';
}

function groupsWith(entries: Entries, right: Right): string[] {
  return Object.keys(entries).filter((name) => name.startsWith('g:') && entries[name]?.[right] === true);
}
