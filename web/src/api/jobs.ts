/** Jobs that the server runs: started, followed to their end, and cancelled. */

import { pause, RequestError, sendJson, untilAnswered } from './client';

export interface Job {
  id: string;
  kind: string;
  domain: string;
  source?: string;
  user?: string;
  status: string;
  done?: number;
  total?: number;
  error?: { kind: string; message: string };
  messages?: string[];
}

export interface JobRequest {
  kind: 'import' | 'copy';
  domain: string;
  source: string;
  options?: Record<string, boolean>;
}

const UNDER_WAY = ['queued', 'running'];
/** Milliseconds between two looks at a job. */
const FIRST_LOOK = 300;
const LAST_LOOK = 3000;

export async function listJobs(signal?: AbortSignal): Promise<Job[]> {
  return (await sendJson<{ jobs: Job[] }>('/jobs', {}, { signal })).jobs;
}

/** Starts a job, or finds the same one, which was started when its answer was lost or the page was closed. */
export async function startJob(request: JobRequest, signal?: AbortSignal): Promise<Job> {
  const jobs = await untilAnswered(() => listJobs(signal), signal);
  const same = jobs.find((job) => job.domain === request.domain && job.source === request.source && UNDER_WAY.includes(job.status));
  return same ?? sendJson<Job>('/jobs', {}, { method: 'POST', body: request, signal });
}

/** Follows a job to its end, and raises its error. An abort cancels it, and is raised once it has ended. */
export async function followJob({ id }: Job, report: (job: Job) => void, signal: AbortSignal): Promise<Job> {
  let isCancelled = false;
  for (let wait = FIRST_LOOK; ; wait = Math.min(2 * wait, LAST_LOOK)) {
    const job = await untilAnswered(() => sendJson<Job>(`/jobs/${id}`), undefined);
    report(job);
    if (job.status === 'done') return job;
    if (job.status === 'cancelled') throw new DOMException('The job was cancelled.', 'AbortError');
    if (!UNDER_WAY.includes(job.status)) throw new RequestError(job.error?.kind ?? 'unknown', 0, job.error?.message ?? `The job is ${job.status}.`);
    if (signal.aborted && !isCancelled) {
      isCancelled = true;
      await untilAnswered(() => sendJson(`/jobs/${id}`, {}, { method: 'DELETE' }), undefined);
      wait = FIRST_LOOK;
    }
    await pause(wait, isCancelled ? undefined : signal).catch(() => undefined);
  }
}
