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

/** Milliseconds between two looks at a job. */
const FIRST_LOOK = 300;
const LAST_LOOK = 3000;

export async function listJobs(signal?: AbortSignal): Promise<Job[]> {
  return (await sendJson<{ jobs: Job[] }>('/jobs', {}, { signal })).jobs;
}

async function listSame({ domain, source }: JobRequest, signal: AbortSignal | undefined): Promise<Job[]> {
  return (await listJobs(signal)).filter((job) => job.domain === domain && job.source === source);
}

/** Finds a job that is under way, as when the page was closed after it was started. */
export async function findJob(request: JobRequest, signal?: AbortSignal): Promise<Job | undefined> {
  const jobs = await untilAnswered(() => listSame(request, signal), signal);
  return jobs.find(isUnderWay);
}

/** Starts a job, unless the same one is under way, or was started although its answer was lost. */
export async function startJob(request: JobRequest, signal?: AbortSignal): Promise<Job> {
  let before: Set<string> | undefined;
  return untilAnswered(async () => {
    const jobs = await listSame(request, signal);
    const ours = jobs.find((job) => isUnderWay(job) || before?.has(job.id) === false);
    if (ours !== undefined) return ours;
    before ??= new Set(jobs.map(({ id }) => id));
    return sendJson<Job>('/jobs', {}, { method: 'POST', body: request, signal });
  }, signal);
}

function isUnderWay({ status }: Job): boolean {
  return status === 'queued' || status === 'running';
}

/** Follows a job to its end, and raises its error. An abort cancels it, and is raised once it has ended. */
export async function followJob({ id }: Job, report: (job: Job) => void, signal: AbortSignal): Promise<Job> {
  let isCancelled = false;
  for (let wait = FIRST_LOOK; ; wait = Math.min(2 * wait, LAST_LOOK)) {
    const job = await untilAnswered(() => sendJson<Job>(`/jobs/${id}`), undefined);
    report(job);
    if (job.status === 'done') return job;
    if (job.status === 'cancelled') throw new DOMException('The job was cancelled.', 'AbortError');
    if (!isUnderWay(job)) throw new RequestError(job.error?.kind ?? 'unknown', 0, job.error?.message ?? `The job is ${job.status}.`);
    if (signal.aborted && !isCancelled) {
      isCancelled = true;
      await untilAnswered(() => sendJson(`/jobs/${id}`, {}, { method: 'DELETE' }), undefined);
      wait = FIRST_LOOK;
    }
    await pause(wait, isCancelled ? undefined : signal).catch(() => undefined);
  }
}
