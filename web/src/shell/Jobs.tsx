/** The imports and exports that the server runs, for admins. */

import { useState } from 'react';
import { listJobs } from '../api/jobs';
import { useLoad } from '../api/load';
import { ErrorNotice } from './ErrorNotice';
import { formatBytes } from './format';

export function Jobs() {
  const [open, setOpen] = useState(false);
  const jobs = useLoad(open ? 'jobs' : undefined, listJobs);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Jobs</summary>
      {jobs.error !== undefined && <ErrorNotice error={jobs.error} retry={jobs.reload} />}
      {jobs.value?.length === 0 && <p className="notice">No jobs.</p>}
      {jobs.value !== undefined && jobs.value.length > 0 && (
        <table>
          <thead>
            <tr>
              <th>Job</th>
              <th>Domain</th>
              <th>User</th>
              <th>Status</th>
              <th>Done</th>
            </tr>
          </thead>
          <tbody>
            {jobs.value.map((job) => (
              <tr key={job.id}>
                <td>{job.kind}</td>
                <td>{job.domain}</td>
                <td>{job.user ?? ''}</td>
                <td>{job.status}</td>
                <td className="number">{job.done === undefined ? '' : formatBytes(job.done)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </details>
  );
}
