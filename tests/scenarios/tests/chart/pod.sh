# Runs a program as a container would: in a root of its own that is read-only but for what is named, as a user of its own, with no
# rights. It is called in a namespace of users in which it may mount.
#
#   pod.sh ROOT UID GID WRITABLE… -- PROGRAM ARGUMENT…
set -eu
root=$1 uid=$2 gid=$3
shift 3
mount --bind "$root" "$root"
# The test's binary is linked to the libraries of this machine; a container has /proc and /dev.
for part in /lib /lib64 /usr/lib /proc /dev; do
	[ -d "$part" ] || continue
	mkdir -p "$root$part"
	mount --rbind "$part" "$root$part"
done
while [ "$1" != -- ]; do
	mount --bind "$root$1" "$root$1"
	shift
done
shift
# Where the folder's file system has these flags, they can't be taken away.
mount -o remount,bind,ro "$root" 2>/dev/null || mount -o remount,bind,ro,nosuid,nodev "$root"
exec unshare --user --map-user="$uid" --map-group="$gid" --root="$root" --wd=/ -- "$@"
