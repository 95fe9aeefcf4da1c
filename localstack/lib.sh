# Shared by up, down, dynamodb-local and test: paths, requirements, installation, start and stop.
# shellcheck shell=bash disable=SC2034 # variables that are set here are used in other files

here=$(cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
cache=${ONCE_CACHE:-${here%/*}/.cache}/localstack
[[ $cache == /* ]] || cache=$PWD/$cache

# How long to wait for what a machine that is busy with other work does late: seconds. It ends only what hangs.
patience=900

# LocalStack is compiled when it first runs. Without this setting, which images of containers have, Python stores the result.
unset PYTHONDONTWRITEBYTECODE

say() { printf 'localstack: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

# --- requirements -------------------------------------------------------------

require_tools() {
  local tool package missing=0
  for tool in "$@"; do
    case $tool in flock | setsid) package=util-linux ;; sha256sum) package=coreutils ;; *) package=$tool ;; esac
    command -v "$tool" >/dev/null || { say "$tool is missing: install it (Debian: $package)" && missing=1; }
  done
  ((missing == 0)) || exit 1
}

require_linux() {
  [[ $(uname -s) == Linux ]] ||
    die "this runs on Linux only: on other systems start LocalStack yourself and set LOCALSTACK_ENDPOINT"
  require_tools curl flock setsid sha256sum
}

# Sets java.
require_java() {
  java=$(command -v "${JAVA_HOME:+$JAVA_HOME/bin/}java" || command -v java) ||
    die "Java is missing: install Java 17 or newer (Debian: openjdk-17-jre-headless) or set JAVA_HOME"
  # Search all lines: with JAVA_TOOL_OPTIONS another line comes first. Java 8 reports version 1.8.
  local text
  text=$("$java" -version 2>&1) || die "$java does not run: $text"
  if ! [[ $text =~ version\ \"([0-9]+) ]] || ((BASH_REMATCH[1] < 17)); then
    die "$java is too old: install Java 17 or newer (Debian: openjdk-17-jre-headless) or set JAVA_HOME"
  fi
}

# Sets python and python_version, such as 3.11.
require_python() {
  # The lock was tested with these versions; a venv without ensurepip has no pip.
  local probe='import sys, venv, ensurepip
assert (3, 11) <= sys.version_info < (3, 14)
print("%d.%d" % sys.version_info[:2])'
  local names=(python3 python3.11 python3.12 python3.13)
  [[ -z ${PYTHON:-} ]] || names=("$PYTHON")
  for python in "${names[@]}"; do
    python_version=$("$python" -c "$probe" 2>/dev/null) && return
  done
  die "no usable Python (tried ${names[*]}): install Python 3.11, 3.12 or 3.13 with venv" \
    "(Debian: python3 and python3-venv) or set PYTHON to one"
}

# --- installation -------------------------------------------------------------
# Each installation is in a folder named by the hash of its lock file or pom. It counts only when complete, so that an
# interrupted one is repeated, and a changed lock file or pom never uses an old installation.

hash_of() { sha256sum "$1" | cut -c1-12; }

# locked FILE COMMAND...: runs COMMAND in a subshell while it holds a lock on FILE.
locked() {
  local file=$1
  shift
  mkdir -p "${file%/*}"
  (
    flock -n 9 || { say "waiting for another run to finish ($file)" && flock -w "$patience" 9; } || die "timed out waiting for $file"
    "$@"
  ) 9>"$file"
}

# logged COMMAND...: runs COMMAND; prints its output only if it fails. Commands that run at once set install_log.
logged() {
  local log=${install_log:-$cache/install.log}
  "$@" >"$log" 2>&1 </dev/null && return
  tail -n 20 "$log" >&2
  die "command failed: $*: see $log"
}

# Sets engine, the folder of DynamoDB Local's jars, and java, which runs them.
need_engine() {
  require_java
  need_jars
}

need_jars() {
  engine=$cache/dynamodb-local-$(hash_of "$here/pom.xml")
  [[ -d $engine ]] || command -v mvn >/dev/null ||
    die "Maven is missing: install mvn (Debian: maven), which downloads DynamoDB Local once"
}

install_engine() {
  [[ ! -d $engine ]] || return 0
  local install_log=$cache/install-dynamodb-local.log begun=$SECONDS
  say "downloading DynamoDB Local with Maven (once)"
  rm -rf "$engine.part"
  logged mvn --batch-mode --strict-checksums -Dstyle.color=never -Dorg.slf4j.simpleLogger.defaultLogLevel=warn \
    -f "$here/pom.xml" dependency:copy-dependencies -DoutputDirectory="$engine.part"
  local want have
  want=$(sed -n 's:.*<jars.sha256>\(.*\)</jars.sha256>.*:\1:p' "$here/pom.xml")
  have=$(cd "$engine.part" && sha256sum -- * | LC_ALL=C sort | sha256sum | cut -c1-64)
  [[ $have == "$want" ]] || die "the jars of DynamoDB Local in $engine.part are not those of pom.xml:" \
    "their digest is $have, want $want; set it if you have changed a version"
  mv "$engine.part" "$engine"
  say "downloaded DynamoDB Local in $((SECONDS - begun)) s"
}

# Sets uv, which installs in seconds what takes pip minutes.
need_uv() {
  local home=$cache/uv-$python_version-$(hash_of "$here/uv.txt")
  uv=$home/bin/uv
  [[ ! -e $home/complete || ! -x $uv ]] || return 0
  rm -rf "$home"
  logged "$python" -m venv "$home"
  logged "$home/bin/python" -m pip install --quiet --no-input --disable-pip-version-check --require-hashes -r "$here/uv.txt"
  touch "$home/complete"
}

# uv_venv FOLDER: makes a virtual environment of the Python that require_python found.
uv_venv() { logged "$uv" venv --no-progress --python "$(type -P "$python")" "$1"; }

# uv_install FOLDER ARGUMENT...: installs packages in that virtual environment. Python compiles them when they are imported.
uv_install() { logged "$uv" pip install --no-progress --python "$1/bin/python" "${@:2}"; }

# Sets venv.
need_venv() {
  require_python
  venv=$cache/venv-$python_version-$(hash_of "$here/requirements.txt")
}

install_venv() {
  # A venv cannot be built in another folder and moved, because its scripts contain its path. A stamp marks a complete one.
  # -x is also false if the Python that the venv links to no longer exists.
  [[ ! -e $venv/complete || ! -x $venv/bin/python ]] || return 0
  local begun=$SECONDS
  say "downloading LocalStack for Python $python_version (once)"
  need_uv
  rm -rf "$venv"
  uv_venv "$venv"
  # Four requirements are published as source. They are built with the locked setuptools, not with the newest.
  sed -n '/^setuptools==/,/[^\\]$/p' "$here/requirements.txt" >"$venv/build-requirements.txt"
  uv_install "$venv" --require-hashes -r "$venv/build-requirements.txt"
  uv_install "$venv" --require-hashes --no-build-isolation -r "$here/requirements.txt"
  # The index of AWS operations, built once here instead of at every start.
  mkdir -p "$venv/share/usr/lib/localstack"
  logged env FILESYSTEM_ROOT="$venv/share" OVERRIDE_IN_DOCKER=0 "$venv/bin/python" -m localstack.aws.spec
  touch "$venv/complete"
  say "installed LocalStack in $((SECONDS - begun)) s"
}

# The plugin that runs Lambda functions. It changes more often than the lock file, so it has a separate stamp.
install_executor() {
  local stamp
  stamp=$venv/executor-$(cat "$here"/executor/{pyproject.toml,README.md,LICENSE} "$here"/executor/once_executor/*.py | sha256sum | cut -c1-12)
  [[ ! -e $stamp ]] || return 0
  need_uv
  rm -rf "$venv"/executor-*
  # A copy, because setuptools builds beside the source.
  mkdir "$venv/executor-source"
  cp -r "$here"/executor/{pyproject.toml,README.md,LICENSE,once_executor} "$venv/executor-source"
  uv_install "$venv" --no-index --no-deps --no-build-isolation --reinstall "$venv/executor-source"
  touch "$stamp"
}

install_all() {
  local engine_job venv_job failed=0
  install_engine &
  engine_job=$!
  { install_venv; install_executor; } &
  venv_job=$!
  wait "$engine_job" || failed=1
  wait "$venv_job" || failed=1
  return "$failed"
}

# --- a running instance -------------------------------------------------------
# The port names its state, so that several instances can run.

use_port() {
  port=${LOCALSTACK_PORT:-4566}
  is_port "$port" || die "LOCALSTACK_PORT is not a port: $port"
  url=http://127.0.0.1:$port
  run=$cache/run/$port
}

is_port() { [[ $1 =~ ^[1-9][0-9]{0,4}$ ]] && (($1 < 65536)); }

port_taken() { (: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Prints a free port below the range from which the kernel assigns ports.
free_port() {
  local port
  while true; do
    port=$((20000 + RANDOM % 12000))
    port_taken "$port" || { echo "$port" && return; }
  done
}

# Every process of this instance, anywhere in the process tree: LocalStack starts its children in new
# sessions, and they outlive it when it is killed. They all inherit the variable that names the run folder.
instance_pids() {
  grep -lszxF -e "ONCE_LOCALSTACK_RUN=$run" /proc/[0-9]*/environ | cut -d/ -f3 || true
}

# The main process, if it is alive. The pid from the file alone could belong to an unrelated process by now.
main_pid() {
  [[ -s $run/pid ]] && instance_pids | grep -x "$(<"$run/pid")"
}

launch() {
  local lib=$run/root/var/lib/localstack/lib
  rm -rf "$run"
  mkdir -p "$run/tmp" "$run/root/usr/lib" "$lib/dynamodb-local/2" "$lib/java/21/bin"
  ln -s "$venv/share/usr/lib/localstack" "$run/root/usr/lib/localstack"
  # The files whose absence makes LocalStack download DynamoDB Local and a Java. The jars are only
  # markers; the shim for java runs the engine that Maven downloaded.
  : >"$lib/dynamodb-local/2/DynamoDBLocal.jar"
  : >"$lib/dynamodb-local/2/ddb-local-loader-0.1.jar"
  ln -s "$here/java-shim" "$lib/java/21/bin/java"

  (
    # Do not use the caller's AWS account or proxy.
    unset "${!AWS_@}" http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
    export ONCE_LOCALSTACK_RUN=$run ONCE_JAVA=$java ONCE_ENGINE=$engine
    # Set TMP, not TMPDIR: for TMPDIR, LocalStack warns at every start about its former meaning.
    unset TMPDIR
    export FILESYSTEM_ROOT=$run/root TMP=$run/tmp CONFIG_DIR=$run/config OVERRIDE_IN_DOCKER=0
    export GATEWAY_LISTEN=127.0.0.1:$port
    # Addresses that LocalStack returns must work without public DNS.
    export LOCALSTACK_HOST=localhost:$port SQS_ENDPOINT_STRATEGY=path DNS_ADDRESS=0
    # No telemetry, no downloads, no persistence.
    export DISABLE_EVENTS=1 SKIP_SSL_CERT_DOWNLOAD=1 PERSISTENCE=0 DYNAMODB_IN_MEMORY=1
    # Lambda functions are processes, and usable as soon as they are created.
    export LAMBDA_RUNTIME_EXECUTOR=process LAMBDA_SYNCHRONOUS_CREATE=1
    # The executor ends an init after Lambda's ten seconds.
    export LAMBDA_RUNTIME_ENVIRONMENT_TIMEOUT=$patience
    # 0: the kernel picks a free port, so that two instances cannot use the same one.
    export DYNAMODB_LOCAL_PORT=0
    cd "$run" || exit
    # Close the caller's descriptors: a program that captures the output of `up` waits until all are closed.
    for fd in /proc/self/fd/*; do
      fd=${fd##*/}
      ((fd <= 2 || fd == 255)) || eval "exec $fd>&-"
    done
    exec setsid "$venv/bin/python" -P "$here/main.py"
  ) </dev/null >"$run/log" 2>&1 &
  echo $! >"$run/pid"
}

# Waits until the instance answers, DynamoDB included, which LocalStack starts at the first request.
wait_ready() {
  local end=$((SECONDS + patience)) pid
  pid=$(<"$run/pid")
  # An answer alone could come from another LocalStack that has just taken the port.
  until [[ -e $run/listening ]] && has_dynamodb "$url"; do
    kill -0 "$pid" 2>/dev/null && ((SECONDS < end)) || return 1
    sleep 0.2
  done
}

# has_dynamodb URL: whether DynamoDB answers there, of LocalStack or of another program.
has_dynamodb() { dynamodb "$1" ListTables '{}' 2>/dev/null | grep -q '"TableNames"'; }

# dynamodb URL OPERATION JSON: one request, without an SDK. The signature is not checked.
dynamodb() {
  curl -sS --fail-with-body --noproxy '*' --max-time "$patience" "$1/" -d "$3" \
    -H "X-Amz-Target: DynamoDB_20120810.$2" -H 'Content-Type: application/x-amz-json-1.0' \
    -H 'Authorization: AWS4-HMAC-SHA256 Credential=test/20250101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0'
}

# Ends every process of the instance: first with SIGTERM, then with SIGKILL.
stop_instance() {
  local pid pids end=$((SECONDS + 10))
  if pid=$(main_pid); then
    kill -TERM "$pid" 2>/dev/null || true
    while main_pid >/dev/null && ((SECONDS < end)); do sleep 0.1; done
  fi
  end=$((SECONDS + patience))
  while pids=$(instance_pids) && [[ -n $pids ]]; do
    ((SECONDS < end)) || die "these processes do not end: ${pids//$'\n'/ }"
    # shellcheck disable=SC2086 # a list of numbers
    kill -KILL $pids 2>/dev/null || true
    sleep 0.1
  done
  # The log remains for reading.
  rm -rf "$run/pid" "$run/listening" "$run/root" "$run/tmp" "$run/config"
}
