/** The users and groups that the server knows before they sign in, for admins. */

import { useState } from 'react';
import { formatAddress } from '../address';
import { sendJson } from '../api/client';
import { useLoad } from '../api/load';
import { ErrorNotice } from './ErrorNotice';

interface User {
  userName: string;
  admin: boolean;
  groups: string[];
}

export function Users() {
  const [open, setOpen] = useState(false);
  const users = useLoad(open ? 'users' : undefined, async (signal) => {
    return (await sendJson<{ users: User[] }>('/users', {}, { signal })).users;
  });
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Users and groups</summary>
      {users.error !== undefined && <ErrorNotice error={users.error} retry={users.reload} />}
      {users.value !== undefined && (
        <>
          <table aria-label="Users">
            <thead>
              <tr>
                <th>User</th>
                <th>Role</th>
                <th>Groups</th>
              </tr>
            </thead>
            <tbody>
              {users.value.map(({ userName, admin, groups }) => (
                <tr key={userName}>
                  <td>
                    <a href={formatAddress({ domain: `/home/${userName}`, path: '/', bucket: undefined })}>{userName}</a>
                  </td>
                  <td>{admin ? 'admin' : 'user'}</td>
                  <td>{groups.join(', ')}</td>
                </tr>
              ))}
            </tbody>
          </table>
          <Groups users={users.value} />
        </>
      )}
    </details>
  );
}

function Groups({ users }: { users: User[] }) {
  const names = [...new Set(users.flatMap(({ groups }) => groups))].sort();
  if (names.length === 0) return <p className="notice">No groups.</p>;
  return (
    <table aria-label="Groups">
      <thead>
        <tr>
          <th>Group</th>
          <th>Users</th>
        </tr>
      </thead>
      <tbody>
        {names.map((name) => (
          <tr key={name}>
            <td>{name}</td>
            <td>
              {users
                .filter(({ groups }) => groups.includes(name))
                .map(({ userName }) => userName)
                .join(', ')}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
