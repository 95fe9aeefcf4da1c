// SPDX-License-Identifier: Apache-2.0

// Powertools for AWS Lambda (TypeScript) as a contestant: see measure.go. It is
// JavaScript, as it runs on Lambda. With SDK_ONLY set it only creates a client of
// the SDK, for the comparison of starts.

import { createInterface } from 'node:readline';
import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { DynamoDBClient } from '@aws-sdk/client-dynamodb';

const answer = (value) => writeSync(1, `${JSON.stringify(value)}\n`);

const client = new DynamoDBClient({});
if (process.env.SDK_ONLY) {
  answer({ ready: true });
  process.exit();
}

const { IdempotencyConfig, IdempotencyAlreadyInProgressError, makeIdempotent } = await import('@aws-lambda-powertools/idempotency');
const { DynamoDBPersistenceLayer } = await import('@aws-lambda-powertools/idempotency/dynamodb');
const { BatchProcessor, EventType, processPartialResponse } = await import('@aws-lambda-powertools/batch');

const persistenceStore = new DynamoDBPersistenceLayer({ tableName: process.env.TABLE, keyAttr: 'pk', awsSdkV3Client: client });
const config = new IdempotencyConfig({
  eventKeyJmesPath: 'id',
  expiresAfterSeconds: 24 * 60 * 60,
  ...(process.env.VALIDATE ? { payloadValidationJmesPath: 'amount' } : {}),
});
const results = {};
let runs = 0;
let during;

const context = (milliseconds = 30_000) => {
  const end = Date.now() + milliseconds;
  return {
    functionName: 'charge',
    functionVersion: '$LATEST',
    memoryLimitInMB: '512',
    invokedFunctionArn: 'arn:aws:lambda:us-east-1:123456789012:function:charge',
    awsRequestId: '5d1f0c0a-2f1c-4a52-8c3e-0f2d6a3c9d11',
    getRemainingTimeInMillis: () => Math.max(0, end - Date.now()),
  };
};

const handle = async (event) => {
  runs++;
  if (during) await during(event);
  return results[event.size];
};
const handler = makeIdempotent(async (event, _context) => handle(event), { config, persistenceStore });
const handleMessage = makeIdempotent(handle, { config, persistenceStore });
const processor = new BatchProcessor(EventType.SQS);
const batchHandler = async (event, ctx) => {
  config.registerLambdaContext(ctx);
  return processPartialResponse(event, async (record) => handleMessage(JSON.parse(record.body)), processor, { context: ctx });
};

const fail = (text) => {
  process.stderr.write(`${text}\n`);
  process.exit(1);
};

const measure = async (work) => {
  const before = process.cpuUsage();
  const began = process.hrtime.bigint();
  await work();
  const wall = Number(process.hrtime.bigint() - began);
  const { user, system } = process.cpuUsage(before);
  return { wall, cpu: (user + system) * 1000 };
};

// The size of a request without padding, in bytes of JSON.
const empty = '{"id":"","amount":4200,"size":"small","steps":0,"pad":""}'.length + 26;

const fresh = (size = 'small', body = 0) => {
  const pad = 'x'.repeat(Math.max(0, body - empty));
  return { id: randomBytes(13).toString('hex'), amount: 4200, size, steps: 0, pad };
};

const repeat = async (n, call, flight = 1) => {
  if (flight > 1) {
    await Promise.all(Array.from({ length: flight }, (_, i) => repeat(Math.floor((n + flight - 1 - i) / flight), call)));
    return;
  }
  for (let i = 0; i < n; i++) await call();
};

const doOne = async (request) => {
  const got = await handler(request, context());
  const want = results[request.size];
  if (got.id !== want.id || got.lines?.length !== want.lines?.length) fail('a request was not answered with the result');
};

// refused calls the handler for a key that is in use, and reports whether it was
// refused.
const refused = async (request) => {
  try {
    await handler(request, context());
  } catch (e) {
    if (e instanceof IdempotencyAlreadyInProgressError) return true;
    throw e;
  }
  return false;
};

const message = (request) => ({
  messageId: request.id,
  receiptHandle: 'handle',
  body: JSON.stringify(request),
  attributes: {},
  messageAttributes: {},
  md5OfBody: '',
  eventSource: 'aws:sqs',
  eventSourceARN: 'arn:aws:sqs:us-east-1:123456789012:charges',
  awsRegion: 'us-east-1',
});

const work = async ({ work: name, n, result, body, flight }) => {
  runs = 0;
  let want = n;
  let took;
  if (name === 'first') {
    took = await measure(() => repeat(n, () => doOne(fresh(result, body)), flight));
  } else if (name === 'replay') {
    const request = fresh(result, body);
    want = 1;
    await doOne(request);
    took = await measure(() => repeat(n, () => doOne(request), flight));
  } else if (name === 'in-progress') {
    want = 1;
    during = async (event) => {
      took = await measure(() => repeat(n, async () => (await refused(event)) || fail('a request in progress was not refused')));
    };
    await doOne(fresh());
    during = undefined;
  } else if (name === '64-callers') {
    took = await measure(() =>
      repeat(n, () => {
        const request = fresh();
        return Promise.all(Array.from({ length: 64 }, () => refused(request)));
      })
    );
  } else if (name === 'batch-10') {
    want = 10 * n;
    took = await measure(() =>
      repeat(n, async () => {
        const { batchItemFailures } = await batchHandler({ Records: Array.from({ length: 10 }, () => message(fresh())) }, context());
        if (batchItemFailures.length > 0) fail('messages failed');
      })
    );
  } else {
    fail(`unknown work ${name}`);
  }
  if (runs !== want) fail(`${name}: the handler ran ${runs} times, want ${want}`);
  return took;
};

const input = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

const one = async ({ request, mode, timeout, note = '' }) => {
  const kept = results[request.size];
  results[request.size] = { ...kept, note };
  runs = 0;
  during = async () => {
    if (mode === 'fail') throw new Error('the handler failed after its effect');
    if (mode === 'wait') {
      answer({ entered: true });
      await input.next();
    }
  };
  const out = { note: '', error: '' };
  try {
    out.note = (await handler(request, context(timeout || 30_000))).note ?? '';
  } catch (e) {
    out.error = e instanceof IdempotencyAlreadyInProgressError ? 'in progress' : `${e.name}: ${e.message}`;
  }
  during = undefined;
  results[request.size] = kept;
  return { ...out, runs };
};

for (const size of ['small', '1KB', '20KB', '300KB', '600KB']) {
  const path = join(process.env.RESULTS ?? '', `${size}.json`);
  if (!existsSync(path)) break; // only a start is measured
  results[size] = JSON.parse(readFileSync(path, 'utf8'));
}
answer({ ready: true });
for (let line = await input.next(); !line.done; line = await input.next()) {
  const command = JSON.parse(line.value);
  answer(command.request ? await one(command) : await work(command));
}
