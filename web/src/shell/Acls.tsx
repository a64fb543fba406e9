/** The rights of a folder or a domain, for those who may see them. */

import { useState } from 'react';
import { sendJson } from '../api/client';
import type { Domain } from '../api/hdf';
import { useLoad } from '../api/load';
import { ErrorNotice } from './ErrorNotice';

const RIGHTS = ['create', 'read', 'update', 'delete', 'readACL', 'updateACL'] as const;
type Acl = { userName: string } & Record<(typeof RIGHTS)[number], boolean>;

export function Acls({ domain }: { domain: Domain }) {
  const [open, setOpen] = useState(false);
  const acls = useLoad(open ? `${domain.bucket} ${domain.path}` : undefined, async (signal) => {
    return (await sendJson<{ acls: Acl[] }>('/acls', domain.query, { signal })).acls;
  });
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Rights</summary>
      {acls.error !== undefined && <ErrorNotice error={acls.error} retry={acls.reload} />}
      {acls.value !== undefined && (
        <table>
          <thead>
            <tr>
              <th>User</th>
              {RIGHTS.map((right) => (
                <th key={right}>{right}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {acls.value.map((acl) => (
              <tr key={acl.userName}>
                <td>{acl.userName}</td>
                {RIGHTS.map((right) => (
                  <td key={right}>{acl[right] ? 'yes' : '–'}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </details>
  );
}
