// SPDX-License-Identifier: Apache-2.0

// Runs the handler of app for each line of standard input, many at a time: see
// handler.go.

import { createInterface } from 'node:readline';
import { answer, released } from './provider.js';

console.warn = () => {}; // the payloads of hashes are not events
const { handler, persistenceStore } = await import('./app.mjs');

const context = {
  functionName: 'charge',
  functionVersion: '$LATEST',
  memoryLimitInMB: '512',
  invokedFunctionArn: 'arn:aws:lambda:us-east-1:123456789012:function:charge',
  awsRequestId: '5d1f0c0a-2f1c-4a52-8c3e-0f2d6a3c9d11',
  getRemainingTimeInMillis: () => 600_000,
};

const run = async (event) => {
  try {
    answer({ n: event.n, result: await handler(event, context) });
  } catch (e) {
    answer({ n: event.n, error: e.name });
  }
};

const hash = (event) => answer({ n: event.n, key: persistenceStore.getHashedIdempotencyKey(event) });

await handler({ orderId: 'configure', amount: 0, n: -1, mode: 'ok' }, context); // the first call configures the store
for await (const line of createInterface({ input: process.stdin })) {
  const event = JSON.parse(line);
  if (event.mode === 'hash') hash(event);
  else if (event.mode === 'release') {
    released(event.orderId).resolve();
    answer({ n: event.n });
  } else run(event);
}
process.exit();
