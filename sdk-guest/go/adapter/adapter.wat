;; What Go's `wasip1` port asks of its system, answered by the daemon.
;;
;; Go compiles to a core module that imports `wasi_snapshot_preview1`. This module implements that interface on top of what
;; a component may import: the contract's `system` for the time of day and for chance, and of WASI 0.2 the standard
;; outputs, the monotonic clock and its timers. There are no files, no environment and no network.
;;
;; One rule of the component model shapes it: while the daemon allocates memory in the component (`cabi_realloc`) or tells
;; it that an answer has been read (`cabi_post_…`), nothing may be imported; an attempt traps. Go's scheduler and its garbage
;; collector look at the clock at such moments too. So the SDK says when a call is in progress (`capstan_calls`), and at all
;; other times clocks stand still, what is printed is dropped, and sleeping returns at once.
;;
;; An imported function that returns more than one number writes it to memory, and preview 1 leaves us no room of our own
;; there. Such answers go to address 16 and what was there is put back: nothing else runs meanwhile.
(module
  (import "env" "memory" (memory 0))
  (import "capstan:operator/system@0.1.0" "now-ms" (func $now_ms (result f64)))
  (import "capstan:operator/system@0.1.0" "random-bytes" (func $random_bytes (param $len i32) (param $answer i32)))
  (import "wasi:cli/stdout@0.2.0" "get-stdout" (func $get_stdout (result i32)))
  (import "wasi:cli/stderr@0.2.0" "get-stderr" (func $get_stderr (result i32)))
  (import "wasi:cli/exit@0.2.0" "exit" (func $exit (param $failed i32)))
  (import "wasi:io/streams@0.2.0" "[method]output-stream.blocking-write-and-flush"
    (func $write (param $stream i32) (param $bytes i32) (param $len i32) (param $answer i32)))
  (import "wasi:clocks/monotonic-clock@0.2.0" "now" (func $ticks (result i64)))
  (import "wasi:clocks/monotonic-clock@0.2.0" "subscribe-duration" (func $timer (param $ns i64) (result i32)))
  (import "wasi:io/poll@0.2.0" "[method]pollable.block" (func $block (param $timer i32)))
  (import "wasi:io/poll@0.2.0" "[resource-drop]pollable" (func $drop_timer (param $timer i32)))

  ;; Errors of preview 1.
  (global $ok i32 (i32.const 0))
  (global $badf i32 (i32.const 8))
  (global $inval i32 (i32.const 28))
  (global $io i32 (i32.const 29))
  (global $nosys i32 (i32.const 52))

  ;; Whether imports may be called. 2 while the component starts: yes, but clocks are asked once, as nobody tells us when
  ;; the start is over. 1 during a call: yes. 0 between calls and while an import is carried out: no.
  (global $calls (mut i32) (i32.const 2))
  ;; The last answers of the clocks, in nanoseconds; 0 before the first.
  (global $realtime (mut i64) (i64.const 0))
  (global $monotonic (mut i64) (i64.const 0))
  ;; Handles of the standard outputs; -1 before the first use.
  (global $stdout (mut i32) (i32.const -1))
  (global $stderr (mut i32) (i32.const -1))
  ;; Where `random-bytes` shall put its answer.
  (global $destination (mut i32) (i32.const 0))

  ;; Says whether imports may be called from now on: 1 when a call begins or an import is over, 0 when a call ends or an
  ;; import begins.
  (func (export "capstan_calls") (param $allowed i32)
    (global.set $calls (local.get $allowed)))

  ;; Memory for the answers of our own imports. Only `random-bytes` needs some, and gets what the question named.
  (func (export "cabi_import_realloc") (param i32 i32 i32 i32) (result i32)
    (global.get $destination))

  ;; === time ===

  ;; Returns whether a clock has to be asked whose last answer this is.
  (func $stale (param $last i64) (result i32)
    (i32.or
      (i32.eq (global.get $calls) (i32.const 1))
      (i32.and (i32.eq (global.get $calls) (i32.const 2)) (i64.eqz (local.get $last)))))

  ;; Returns the time of a clock: 0 is the time of day, every other one counts from anywhere.
  (func $time (param $clock i32) (result i64)
    (if (i32.eqz (local.get $clock)) (then
      (if (call $stale (global.get $realtime)) (then
        (global.set $realtime (i64.trunc_sat_f64_s (f64.mul (call $now_ms) (f64.const 1000000))))))
      (return (global.get $realtime))))
    (if (call $stale (global.get $monotonic)) (then
      (global.set $monotonic (call $ticks))))
    (global.get $monotonic))

  (func (export "clock_time_get") (param $clock i32) (param $precision i64) (param $answer i32) (result i32)
    (i64.store (local.get $answer) (call $time (local.get $clock)))
    (global.get $ok))

  (func (export "clock_res_get") (param $clock i32) (param $answer i32) (result i32)
    (i64.store (local.get $answer) (i64.const 1000))
    (global.get $ok))

  ;; Returns how long a subscription to a clock has still to wait.
  (func $wait_of (param $subscription i32) (result i64)
    (local $ns i64)
    (local.set $ns (i64.load offset=24 (local.get $subscription)))
    ;; An absolute time.
    (if (i32.and (i32.load16_u offset=40 (local.get $subscription)) (i32.const 1)) (then
      (local.set $ns (i64.sub (local.get $ns) (call $time (i32.load offset=16 (local.get $subscription)))))
      (if (i64.lt_s (local.get $ns) (i64.const 0)) (then (return (i64.const 0))))))
    (local.get $ns))

  ;; Sleeps. The daemon's thread is free meanwhile, and the call's time goes on.
  (func $sleep (param $ns i64)
    (local $timer i32)
    (if (i32.or (i64.eqz (local.get $ns)) (i32.ne (global.get $calls) (i32.const 1))) (then (return)))
    (local.set $timer (call $timer (local.get $ns)))
    (call $block (local.get $timer))
    (call $drop_timer (local.get $timer)))

  ;; Waits for the first of some clocks. Where a file is among them there is no wait: that one has failed already.
  (func (export "poll_oneoff") (param $subscriptions i32) (param $events i32) (param $count i32) (param $answer i32) (result i32)
    (local $at i32) (local $end i32) (local $ns i64) (local $shortest i64) (local $fired i32)
    (if (i32.eqz (local.get $count)) (then (return (global.get $inval))))
    (local.set $end (i32.add (local.get $subscriptions) (i32.mul (local.get $count) (i32.const 48))))
    (local.set $shortest (i64.const -1))
    (local.set $at (local.get $subscriptions))
    (loop $look
      (local.set $ns (i64.const 0))
      (if (i32.eqz (i32.load8_u offset=8 (local.get $at))) (then
        (local.set $ns (call $wait_of (local.get $at)))))
      (if (i64.lt_u (local.get $ns) (local.get $shortest)) (then (local.set $shortest (local.get $ns))))
      (br_if $look (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 48))) (local.get $end))))
    (call $sleep (local.get $shortest))
    (local.set $at (local.get $subscriptions))
    (loop $tell
      (local.set $ns (i64.const 0))
      (if (i32.eqz (i32.load8_u offset=8 (local.get $at))) (then
        (local.set $ns (i64.load offset=24 (local.get $at)))
        ;; After the sleep an absolute time has nothing left to wait.
        (if (i32.and (i32.load16_u offset=40 (local.get $at)) (i32.const 1)) (then
          (local.set $ns (call $wait_of (local.get $at)))))))
      (if (i64.le_u (local.get $ns) (local.get $shortest)) (then
        (i64.store (local.get $events) (i64.load (local.get $at)))
        (i64.store offset=8 (local.get $events) (i64.const 0))
        (if (i32.load8_u offset=8 (local.get $at)) (then
          (i32.store16 offset=8 (local.get $events) (global.get $badf))))
        (i32.store8 offset=10 (local.get $events) (i32.load8_u offset=8 (local.get $at)))
        (i64.store offset=16 (local.get $events) (i64.const 0))
        (i64.store offset=24 (local.get $events) (i64.const 0))
        (local.set $events (i32.add (local.get $events) (i32.const 32)))
        (local.set $fired (i32.add (local.get $fired) (i32.const 1)))))
      (br_if $tell (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 48))) (local.get $end))))
    (i32.store (local.get $answer) (local.get $fired))
    (global.get $ok))

  (func (export "sched_yield") (result i32) (global.get $ok))

  ;; === chance ===

  ;; Fills a buffer, 4096 bytes at a time as the contract wants it. Never by anything weaker.
  (func (export "random_get") (param $buffer i32) (param $len i32) (result i32)
    (local $part i32) (local $kept i64)
    (block $done (loop $more
      (br_if $done (i32.eqz (local.get $len)))
      (local.set $part (select (local.get $len) (i32.const 4096) (i32.lt_u (local.get $len) (i32.const 4096))))
      (local.set $kept (i64.load (i32.const 16)))
      (global.set $destination (local.get $buffer))
      (call $random_bytes (local.get $part) (i32.const 16))
      (i64.store (i32.const 16) (local.get $kept))
      (local.set $buffer (i32.add (local.get $buffer) (local.get $part)))
      (local.set $len (i32.sub (local.get $len) (local.get $part)))
      (br $more)))
    (global.get $ok))

  ;; === printing ===

  ;; Returns the stream of a standard output.
  (func $stream (param $fd i32) (result i32)
    (if (i32.eq (local.get $fd) (i32.const 1)) (then
      (if (i32.eq (global.get $stdout) (i32.const -1)) (then (global.set $stdout (call $get_stdout))))
      (return (global.get $stdout))))
    (if (i32.eq (global.get $stderr) (i32.const -1)) (then (global.set $stderr (call $get_stderr))))
    (global.get $stderr))

  ;; Writes bytes, 4096 at a time as WASI wants it. Returns 0 if that failed.
  (func $print (param $stream i32) (param $bytes i32) (param $len i32) (result i32)
    (local $part i32) (local $kept i64) (local $kept_too i32) (local $failed i32)
    (block $done (loop $more
      (br_if $done (i32.eqz (local.get $len)))
      (local.set $part (select (local.get $len) (i32.const 4096) (i32.lt_u (local.get $len) (i32.const 4096))))
      (local.set $kept (i64.load (i32.const 16)))
      (local.set $kept_too (i32.load (i32.const 24)))
      (call $write (local.get $stream) (local.get $bytes) (local.get $part) (i32.const 16))
      (local.set $failed (i32.load8_u (i32.const 16)))
      (i64.store (i32.const 16) (local.get $kept))
      (i32.store (i32.const 24) (local.get $kept_too))
      (if (local.get $failed) (then (return (i32.const 0))))
      (local.set $bytes (i32.add (local.get $bytes) (local.get $part)))
      (local.set $len (i32.sub (local.get $len) (local.get $part)))
      (br $more)))
    (i32.const 1))

  (func (export "fd_write") (param $fd i32) (param $pieces i32) (param $count i32) (param $answer i32) (result i32)
    (local $sum i32)
    (if (i32.or (i32.eqz (local.get $fd)) (i32.gt_u (local.get $fd) (i32.const 2))) (then (return (global.get $badf))))
    (block $done (loop $more
      (br_if $done (i32.eqz (local.get $count)))
      (if (global.get $calls) (then
        (if (i32.eqz (call $print
            (call $stream (local.get $fd))
            (i32.load (local.get $pieces))
            (i32.load offset=4 (local.get $pieces)))) (then (return (global.get $io))))))
      (local.set $sum (i32.add (local.get $sum) (i32.load offset=4 (local.get $pieces))))
      (local.set $pieces (i32.add (local.get $pieces) (i32.const 8)))
      (local.set $count (i32.sub (local.get $count) (i32.const 1)))
      (br $more)))
    (i32.store (local.get $answer) (local.get $sum))
    (global.get $ok))

  ;; The standard outputs are character devices that can be written, the standard input one that is empty.
  (func (export "fd_fdstat_get") (param $fd i32) (param $answer i32) (result i32)
    (if (i32.gt_u (local.get $fd) (i32.const 2)) (then (return (global.get $badf))))
    (i64.store (local.get $answer) (i64.const 2))
    (i64.store offset=8 (local.get $answer) (select (i64.const 2) (i64.const 64) (i32.eqz (local.get $fd))))
    (i64.store offset=16 (local.get $answer) (i64.const 0))
    (global.get $ok))

  (func (export "fd_read") (param $fd i32) (param $pieces i32) (param $count i32) (param $answer i32) (result i32)
    (if (local.get $fd) (then (return (global.get $badf))))
    (i32.store (local.get $answer) (i32.const 0))
    (global.get $ok))

  ;; === the end ===

  ;; Go ends itself with 2 after a panic or a fatal error. That is a trap, whose message the daemon takes from what was
  ;; printed before. Any other code comes from os.Exit.
  (func (export "proc_exit") (param $code i32)
    (if (i32.ne (local.get $code) (i32.const 2)) (then
      (call $exit (i32.ne (local.get $code) (i32.const 0)))))
    unreachable)

  ;; === arguments ===

  ;; One argument, as a program always has its name: libraries look at it without asking whether it is there.
  (func (export "args_sizes_get") (param $count i32) (param $size i32) (result i32)
    (i32.store (local.get $count) (i32.const 1))
    (i32.store (local.get $size) (i32.const 9))
    (global.get $ok))
  (func (export "args_get") (param $pointers i32) (param $texts i32) (result i32)
    (i32.store (local.get $pointers) (local.get $texts))
    ;; "operator" and a zero.
    (i64.store (local.get $texts) (i64.const 0x726f74617265706f))
    (i32.store8 offset=8 (local.get $texts) (i32.const 0))
    (global.get $ok))

  ;; === what there is none of ===

  (func (export "environ_sizes_get") (param $count i32) (param $size i32) (result i32)
    (i32.store (local.get $count) (i32.const 0))
    (i32.store (local.get $size) (i32.const 0))
    (global.get $ok))
  (func (export "environ_get") (param i32 i32) (result i32) (global.get $ok))

  (func (export "fd_advise") (param i32 i64 i64 i32) (result i32) (global.get $badf))
  (func (export "fd_allocate") (param i32 i64 i64) (result i32) (global.get $badf))
  (func (export "fd_close") (param i32) (result i32) (global.get $badf))
  (func (export "fd_datasync") (param i32) (result i32) (global.get $badf))
  (func (export "fd_fdstat_set_flags") (param i32 i32) (result i32) (global.get $badf))
  (func (export "fd_fdstat_set_rights") (param i32 i64 i64) (result i32) (global.get $badf))
  (func (export "fd_filestat_get") (param i32 i32) (result i32) (global.get $badf))
  (func (export "fd_filestat_set_size") (param i32 i64) (result i32) (global.get $badf))
  (func (export "fd_filestat_set_times") (param i32 i64 i64 i32) (result i32) (global.get $badf))
  (func (export "fd_pread") (param i32 i32 i32 i64 i32) (result i32) (global.get $badf))
  (func (export "fd_prestat_get") (param i32 i32) (result i32) (global.get $badf))
  (func (export "fd_prestat_dir_name") (param i32 i32 i32) (result i32) (global.get $badf))
  (func (export "fd_pwrite") (param i32 i32 i32 i64 i32) (result i32) (global.get $badf))
  (func (export "fd_readdir") (param i32 i32 i32 i64 i32) (result i32) (global.get $badf))
  (func (export "fd_renumber") (param i32 i32) (result i32) (global.get $badf))
  (func (export "fd_seek") (param i32 i64 i32 i32) (result i32) (global.get $badf))
  (func (export "fd_sync") (param i32) (result i32) (global.get $badf))
  (func (export "fd_tell") (param i32 i32) (result i32) (global.get $badf))
  (func (export "path_create_directory") (param i32 i32 i32) (result i32) (global.get $nosys))
  (func (export "path_filestat_get") (param i32 i32 i32 i32 i32) (result i32) (global.get $nosys))
  (func (export "path_filestat_set_times") (param i32 i32 i32 i32 i64 i64 i32) (result i32) (global.get $nosys))
  (func (export "path_link") (param i32 i32 i32 i32 i32 i32 i32) (result i32) (global.get $nosys))
  (func (export "path_open") (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32) (global.get $nosys))
  (func (export "path_readlink") (param i32 i32 i32 i32 i32 i32) (result i32) (global.get $nosys))
  (func (export "path_remove_directory") (param i32 i32 i32) (result i32) (global.get $nosys))
  (func (export "path_rename") (param i32 i32 i32 i32 i32 i32) (result i32) (global.get $nosys))
  (func (export "path_symlink") (param i32 i32 i32 i32 i32) (result i32) (global.get $nosys))
  (func (export "path_unlink_file") (param i32 i32 i32) (result i32) (global.get $nosys))
  (func (export "proc_raise") (param i32) (result i32) (global.get $nosys))
  (func (export "sock_accept") (param i32 i32 i32) (result i32) (global.get $badf))
  (func (export "sock_recv") (param i32 i32 i32 i32 i32 i32) (result i32) (global.get $badf))
  (func (export "sock_send") (param i32 i32 i32 i32 i32) (result i32) (global.get $badf))
  (func (export "sock_shutdown") (param i32 i32) (result i32) (global.get $badf))
)
