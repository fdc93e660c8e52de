# Runs a program and kills it when our standard input ends, which it does however the process at its other end goes.
# Arguments: where to write the program's process id, the program, its arguments.
pid_file=$1
shift
exec 3<&0
"$@" </dev/null 3<&- &
program=$!
echo "$program" >"$pid_file"
{
	read -r _
	kill -KILL "$program"
} <&3 3<&- >/dev/null 2>&1 &
guard=$!
exec 3<&- </dev/null
wait "$program"
status=$?
kill "$guard" 2>/dev/null
exit "$status"
