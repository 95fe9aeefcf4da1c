#!/bin/sh
# An extension that uses the whole shutdown phase: it registers for the shutdown, and
# then does not end, so that Lambda has to end it.
api=http://$AWS_LAMBDA_RUNTIME_API/2020-01-01/extension
id=$(curl -sSD - -o /dev/null -H "Lambda-Extension-Name: verify" -d '{"events": ["SHUTDOWN"]}' "$api/register" |
  grep -Fi lambda-extension-identifier | tr -d '[:space:]' | cut -d: -f2)
curl -sS -H "Lambda-Extension-Identifier: $id" "$api/event/next"
exec sleep 3600
