# Removes a control plane's folder once our standard input has ended and its processes are gone.
# Argument: the folder. A file `keep` in it keeps everything but etcd's data.
folder=$1
read -r _
for pid_file in "$folder"/pids/*; do
	[ -f "$pid_file" ] || continue
	pid=$(cat "$pid_file")
	tries=0
	while [ "$tries" -lt 200 ] && kill -0 "$pid" 2>/dev/null; do
		sleep 0.02
		tries=$((tries + 1))
	done
done
if [ -e "$folder/keep" ]; then
	rm -rf "$folder/etcd"
else
	rm -rf "$folder"
fi
