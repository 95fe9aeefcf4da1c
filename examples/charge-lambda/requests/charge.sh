#!/usr/bin/env bash
# Sends example requests with curl, and shows each answer. Start the example in
# another terminal, then:
#
#   requests/charge.sh                  the profile ietf
#   PROFILE=stripe requests/charge.sh   if the example runs with PROFILE=stripe
#   URL=http://127.0.0.1:8081 …         if it has another address
#
# Each run uses new random keys. The exit status is 1 if an answer is not the
# expected one of the profile.
set -euo pipefail

url=${URL:-http://127.0.0.1:8080}
profile=${PROFILE:-ietf}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# How the profiles differ: the spelling of a key, an invalid key, and the answer
# to another request with a used key.
case $profile in
ietf)
  written() { printf '"%s"' "$1"; }
  invalid=not-in-quotes reused=422 on_get=404
  ;;
stripe)
  written() { printf '%s' "$1"; }
  invalid=$(printf '%256s' '' | tr ' ' x) reused=400 on_get=404
  ;;
uuid)
  written() { printf '%s' "$1"; }
  invalid=not-a-uuid reused=422 on_get=400
  ;;
*)
  echo "charge.sh: invalid PROFILE \"$profile\": want ietf, stripe or uuid" >&2
  exit 1
  ;;
esac

new_key() { written "$( (uuidgen 2>/dev/null || cat /proc/sys/kernel/random/uuid) | tr A-F a-f)"; }

charge() { # amount customer
  printf '{"amount":%s,"currency":"usd","customer":"%s"}' "$1" "$2"
}

# post sends a charge and prints the answer, headers included.
post() { # key, empty for none; body
  curl -sS -i "$url/charges" ${1:+-H "Idempotency-Key: $1"} \
    -H 'Content-Type: application/json' -d "$2"
}

# want shows an answer and checks its status, and a header if one is given.
want() { # title; status; header or empty; answer
  printf '\n== %s\n%s\n' "$1" "$4"
  case $4 in "HTTP/1.1 $2 "*) ;; *)
    echo "charge.sh: the status is not $2" >&2
    exit 1
    ;;
  esac
  [ -z "$3" ] || grep -qi "^$3" <<<"$4" || {
    echo "charge.sh: there is no header $3" >&2
    exit 1
  }
}

# booked counts the charges in the provider's ledger.
booked() {
  curl -sS "$url/provider/charges" >"$scratch/ledger" || return 1
  { grep -o '"id"' "$scratch/ledger" || true; } | wc -l
}

before=$(booked) || {
  echo "charge.sh: no answer from $url; start the example, or set URL" >&2
  exit 1
}

key=$(new_key)
want 'no key' 400 '' "$(post '' "$(charge 4200 cus_1)")"
want 'an invalid key' 400 '' "$(post "$invalid" "$(charge 4200 cus_1)")"
want 'two keys' 400 '' "$(curl -sS -i "$url/charges" -H "Idempotency-Key: $key" \
  -H "Idempotency-Key: $(new_key)" -H 'Content-Type: application/json' -d "$(charge 4200 cus_1)")"
want 'a charge' 201 'Location: /charges/ch_' "$(post "$key" "$(charge 4200 cus_1)")"
want 'the same again' 201 'Idempotent-Replayed: true' "$(post "$key" "$(charge 4200 cus_1)")"
want 'another charge with the key' "$reused" '' "$(post "$key" "$(charge 9000 cus_1)")"

key=$(new_key)
want 'a card that is declined' 402 '' "$(post "$key" "$(charge 4200 cus_declined)")"
want 'the same again' 402 'Idempotent-Replayed: true' "$(post "$key" "$(charge 4200 cus_declined)")"

key=$(new_key)
want 'an invalid charge: the key stays free' 400 '' "$(post "$key" "$(charge 0 cus_1)")"
want 'the corrected charge' 201 'Location: /charges/ch_' "$(post "$key" "$(charge 4200 cus_1)")"
want 'a key on a GET' "$on_get" '' "$(curl -sS -i "$url/charges/ch_none" -H "Idempotency-Key: $key")"

# The provider takes two seconds for cus_slow.
key=$(new_key)
post "$key" "$(charge 4200 cus_slow)" >"$scratch/first" &
first=$!
until [ "$(booked)" = $((before + 3)) ]; do
  kill -0 $first && sleep 0.05
done
want 'while the first request runs' 409 'Retry-After: ' "$(post "$key" "$(charge 4200 cus_slow)")"
wait $first
want 'the first request' 201 'Location: /charges/ch_' "$(cat "$scratch/first")"
want 'and once more' 201 'Idempotent-Replayed: true' "$(post "$key" "$(charge 4200 cus_slow)")"

after=$(booked)
printf '\n== the provider booked %d charges\n' $((after - before))
[ $((after - before)) = 3 ] || {
  echo "charge.sh: want 3 charges" >&2
  exit 1
}
