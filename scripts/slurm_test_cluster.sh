#!/usr/bin/env bash
# A real SLURM on this machine, for the tests: munge, MariaDB, slurmdbd, slurmctld and four virtual nodes. Debian, as root.
#
#   scripts/slurm_test_cluster.sh up      # installs what is missing; about ten seconds once it is there
#   . "${SLURM_ROOT:-/tmp/minerva-slurm}/env.sh" && sinfo
#   scripts/slurm_test_cluster.sh down    # ends its daemons and removes its files
#
# SLURM_ROOT: where its files are; short, for there are sockets among them. SLURM_PORT: the first of the ports it uses.
set -euo pipefail

root=${SLURM_ROOT:-/tmp/minerva-slurm} port=${SLURM_PORT:-26817} nodes=4
host=$(hostname -s) socket=$root/munge.socket database=$root/mysql.sock

fail() { echo "error: $*" >&2; exit 1; }
say() { echo "$*" >&2; }

install() {
  local missing=() package
  for package in slurmctld slurmd slurm-client slurmdbd munge mariadb-server; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] && return
  say "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 # which keeps Debian from starting them
  apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$root/apt.log" 2>&1 ||
    fail "apt-get: $(tail -3 "$root/apt.log")"
}

begin() { # NAME COMMAND...: a daemon in the foreground of a session of its own, whose process id we keep
  local name=$1
  shift
  running "$name" && return
  setsid "$@" >"$root/$name.log" 2>&1 </dev/null &
  echo $! >"$root/$name.pid"
}

running() { # NAME: a process of that name, for the id may be another's by now
  [ -s "$root/$1.pid" ] && [ "$(tr '\0' '\n' <"/proc/$(cat "$root/$1.pid")/cmdline" | head -1)" = "${1%%.*}" ]
} 2>/dev/null

await() { # WHAT COMMAND...
  local what=$1 left=600
  shift
  until "$@" >/dev/null 2>&1; do
    [ $((left -= 1)) -gt 0 ] || fail "$what does not come up; see $root/*.log"
    sleep 0.1
  done
}

configure() {
  local i
  # cred_expire is also how long a requeued job waits. Accounting tells of jobs that were killed.
  cat >"$root/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$socket,cred_expire=5
CredType=cred/munge
StateSaveLocation=$root/state
SlurmdSpoolDir=$root/spool/%n
SlurmctldPidFile=$root/own.slurmctld
SlurmdPidFile=$root/own.slurmd.%n
SlurmctldLogFile=$root/slurmctld.txt
SlurmdLogFile=$root/slurmd.%n.txt
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=0,bf_interval=2
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
KillWait=5
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$((port + 1))
AccountingStoragePass=$socket
CONF
  for i in $(seq $nodes); do
    echo "NodeName=n$i NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 9 + i)) CPUs=2 RealMemory=4096" >>"$root/slurm.conf"
  done
  cat >>"$root/slurm.conf" <<CONF
PartitionName=main Nodes=n[1-$nodes] Default=YES MaxTime=INFINITE PriorityTier=1 PreemptMode=REQUEUE GraceTime=20
PartitionName=high Nodes=n[1-$nodes] MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF
CONF
  cat >"$root/slurmdbd.conf" <<CONF
AuthType=auth/munge
AuthInfo=socket=$socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=$((port + 1))
SlurmUser=root
LogFile=$root/slurmdbd.txt
PidFile=$root/own.slurmdbd
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$((port + 2))
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm
CONF
  chmod 600 "$root/slurmdbd.conf"
  echo "export SLURM_CONF=$root/slurm.conf" >"$root/env.sh"
}

sql() { mariadb --no-defaults --socket="$database" -uroot -e "$1"; }

up() {
  [ "$(id -u)" = 0 ] || fail "a cluster can be brought up by root alone"
  command -v apt-get >/dev/null || fail "there is no apt-get here, to install SLURM with"
  mkdir -p "$root"/state "$root"/spool
  chmod 755 "$root"
  install
  configure
  export SLURM_CONF=$root/slurm.conf

  [ -s "$root/key" ] || (umask 077 && head -c 1024 /dev/urandom >"$root/key")
  running munged || rm -f "$socket" "$socket.lock"
  begin munged munged --foreground --force --socket="$socket" --key-file="$root/key" --log-file="$root/munged.txt" \
    --pid-file="$root/own.munged" --seed-file="$root/seed"
  await munged munge -n -S "$socket"

  [ -d "$root/db/mysql" ] || mariadb-install-db --no-defaults --user=root --datadir="$root/db" --skip-test-db \
    --auth-root-authentication-method=socket >"$root/install-db.log" 2>&1 || fail "mariadb: see $root/install-db.log"
  begin mariadbd mariadbd --no-defaults --user=root --datadir="$root/db" --socket="$database" --pid-file="$root/own.mariadbd" \
    --bind-address=127.0.0.1 --port=$((port + 2)) --innodb-buffer-pool-size=64M --innodb-flush-log-at-trx-commit=0 --skip-log-bin
  await mariadbd sql "select 1"
  sql "create database if not exists slurm; create user if not exists slurm@localhost identified by 'slurm';
       create user if not exists slurm@127.0.0.1 identified by 'slurm';
       grant all on slurm.* to slurm@localhost; grant all on slurm.* to slurm@127.0.0.1;"
  begin slurmdbd slurmdbd -D
  await slurmdbd sacctmgr -n -i list cluster
  sacctmgr -n list cluster format=cluster | grep -qw test || sacctmgr -i add cluster test >/dev/null

  begin slurmctld slurmctld -D
  local i
  for i in $(seq $nodes); do
    mkdir -p "$root/spool/n$i"
    begin "slurmd.n$i" slurmd -D -N "n$i"
  done
  ready() { [ "$(sinfo -h -N -p main -o %T | grep -cE '^(idle|mixed|allocated|completing)$')" = $nodes ]; }
  await "a node" ready
  registered() { sacctmgr -n list cluster format=controlport | grep -qE '[1-9]'; }
  await "the accounting" registered
  say "$nodes nodes are up:  . $root/env.sh"
}

down() {
  [ -d "$root" ] || return 0
  export SLURM_CONF=$root/slurm.conf
  squeue -h -o %A 2>/dev/null | sort -u | xargs -r scancel 2>/dev/null || true
  local name pid left
  for name in $(cd "$root" && ls slurmd.n*.pid 2>/dev/null | sed 's/\.pid$//') slurmctld slurmdbd mariadbd munged; do
    running "$name" || continue
    pid=$(cat "$root/$name.pid")
    kill "$pid" 2>/dev/null || continue
    left=100
    while kill -0 "$pid" 2>/dev/null && [ $((left -= 1)) -gt 0 ]; do sleep 0.1; done
    kill -9 "$pid" 2>/dev/null || true
  done
  rm -rf "$root"
}

case ${1:-} in
up) up ;;
down) down ;;
*) sed -n '2,9s/^# \?//p' "$0"; [ "${1:-}" = --help ] || exit 2 ;;
esac
