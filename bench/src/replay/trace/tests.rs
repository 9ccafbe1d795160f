//! What the readers accept, and what they say of the rest.

use super::*;

/// Writes a trace and reads it back.
fn read(name: &str, text: &[u8]) -> (PathBuf, Result<Vec<Arrival>, String>) {
    let dir = std::env::temp_dir().join(format!("tollgate-trace-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("trace");
    std::fs::write(&path, text).unwrap();
    let source = Source::File { path: path.clone(), format: None };
    let stream = source.open(0, 1, Arc::default());
    let read = stream.and_then(|stream| stream.collect::<Result<Vec<_>, _>>()).map_err(|e| e.to_string());
    std::fs::remove_dir_all(&dir).unwrap();
    (path, read)
}

#[track_caller]
fn good(name: &str, text: &str) -> Vec<Arrival> {
    read(name, text.as_bytes()).1.unwrap()
}

/// The error without the path in front of it.
#[track_caller]
fn bad(name: &str, text: &[u8]) -> String {
    let (path, read) = read(name, text);
    let error = read.unwrap_err();
    let rest = error.strip_prefix(&format!("{}:", path.display()));
    rest.unwrap_or_else(|| panic!("{error} does not name its file")).to_owned()
}

#[test]
fn azure_with_crlf_a_mark_and_no_last_newline() {
    let text = "\u{feff}TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n\
                2023-11-16 18:17:04.0319600,3180,8";
    let arrivals = good("azure", text);
    let of = |at, input, output| Arrival { at, input, output, ..Arrival::default() };
    assert_eq!(arrivals, [of(0, 4808, 10), of(52_000_000, 3180, 8)]);
}

#[test]
fn azure_errors_name_line_and_column() {
    let crlf =
        b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9,1,1\r\n2023-11-16 18:17:04.9,?,1";
    assert!(bad("azure_crlf", crlf).starts_with("3: ContextTokens: "), "{}", bad("azure_crlf", crlf));
    let with = |row: &str| {
        bad(
            "azure_bad",
            format!("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9,1,1\n{row}\n").as_bytes(),
        )
    };
    assert!(with("yesterday,1,1").starts_with("3: TIMESTAMP: \"yesterday\""), "{}", with("yesterday,1,1"));
    assert_eq!(with("2023-11-16 18:17:04.9,x,1"), "3: ContextTokens: \"x\" is no number of tokens");
    assert_eq!(with("2023-11-16 18:17:04.9,1,-1"), "3: GeneratedTokens: \"-1\" is no number of tokens");
    assert_eq!(with("2023-11-16 18:17:04.9,1"), "3: 2 columns, the header has 3");
    assert_eq!(
        with("2023-11-16 18:17:03.4,1,1"),
        "3: TIMESTAMP: 500ms before the line above; sort the trace by time first"
    );
    assert!(with("2023-11-16 18:17:04.9,99999999999999,1").contains("99999999999999 tokens in the prompt"));
    let missing = bad("azure_column", b"TIMESTAMP,ContextTokens\n2023-11-16 18:17:03.9,1\n");
    assert!(missing.starts_with("1: no column \"GeneratedTokens\""), "{missing}");
}

#[test]
fn mooncake_lines_have_blocks_and_milliseconds() {
    let line = |ms: &str, ids: &str| {
        format!("{{\"timestamp\": {ms}, \"input_length\": 600, \"output_length\": 5, \"hash_ids\": [{ids}]}}")
    };
    let text = format!("{}\r\n\r\n{}", line("27", "0, 1"), line("1027.5", "0, 2"));
    let arrivals = good("mooncake", &text);
    assert_eq!(
        arrivals.iter().map(|a| (a.at, a.blocks.to_vec())).collect::<Vec<_>>(),
        [(0, vec![0, 1]), (1_000_500_000, vec![0, 2])]
    );
    let wrong = bad("mooncake_bad", format!("{}\n\n{}", line("0", "0"), line("5", "-1")).as_bytes());
    assert!(wrong.starts_with("3: invalid value: integer `-1`") && wrong.contains("column"), "{wrong}");
    let cut = bad("mooncake_cut", format!("{}\n{{\"timestamp\": 3, \"input", line("0", "0")).as_bytes());
    assert!(cut.starts_with("2: EOF"), "{cut}");
}

#[test]
fn burstgpt_has_labels_and_seconds() {
    let text = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\r\n\
                5,ChatGPT,472,18,490,Conversation log\r\n45.5,GPT-4,1087,0,1087,API log";
    let arrivals = good("burst", text);
    assert_eq!(
        arrivals.iter().map(|a| (a.at, a.input, a.output)).collect::<Vec<_>>(),
        [(0, 472, 18), (40_500_000_000, 1087, 0)]
    );
    assert_eq!(arrivals[1].label.as_deref(), Some("GPT-4"));
    let wrong = bad("burst_bad", text.replace("45.5", "soon").as_bytes());
    assert_eq!(wrong, "3: Timestamp: \"soon\" is no number of seconds");
}

#[test]
fn a_native_line_may_say_everything_and_nothing_else() {
    let text = "{\"at\": 1, \"tokens\": 10}\n{\"at\": 1.25, \"tokens\": 20, \"output\": 3, \"cached\": 4, \"class\": \"a\", \
                \"label\": \"l\", \"priority\": 7, \"jump\": 0.5, \"pin\": 2, \"deadline_ms\": 1.5, \"blocks\": [8]}";
    let arrivals = good("native", text);
    assert_eq!(arrivals[0], Arrival { input: 10, output: 1, ..Arrival::default() });
    assert_eq!(
        arrivals[1],
        Arrival {
            at: 250_000_000,
            input: 20,
            output: 3,
            cached: 4,
            blocks: [8].into(),
            class: Some("a".into()),
            label: Some("l".into()),
            priority: 7,
            jump: 0.5,
            pin: Some(2),
            deadline: Some(Duration::from_micros(1_500)),
            source: 0,
        }
    );
    let with = |rest: &str| bad("native_bad", format!("{{\"at\": 1, \"tokens\": 10{rest}}}").as_bytes());
    assert!(with(", \"color\": 1").starts_with("1: unknown field `color`"), "{}", with(", \"color\": 1"));
    assert_eq!(with(", \"deadline_ms\": -1"), "1: deadline_ms: -1 is no waiting time");
    assert!(with(", \"class\": 5").starts_with("1: invalid type"), "{}", with(", \"class\": 5"));
    assert!(bad("native_at", b"{\"tokens\": 1, \"at\": 1e300}").starts_with("1: at: no time"));
}

#[test]
fn what_is_no_trace_is_told_before_anything_is_replayed() {
    assert_eq!(bad("empty", b""), "1: the file is empty");
    assert!(bad("other", b"hello,world\n1,2\n").starts_with("1: no known format"));
    assert!(bad("binary", b"\xff\xfe\x00\x01").starts_with("1: no known format"));
    let latin = [&b"Timestamp,Model,Request tokens,Response tokens\n1,caf"[..], b"\xe9,1,1\n"].concat();
    assert_eq!(bad("latin", &latin), "2: not UTF-8");
    let nowhere = Source::parse("no/such/trace.csv").unwrap();
    let error = nowhere.open(0, 1, Arc::default()).err().unwrap().to_string();
    assert!(error.starts_with("no/such/trace.csv: "), "{error}");
}

#[test]
fn an_error_ends_the_stream_after_what_was_good() {
    let dir = std::env::temp_dir().join(format!("tollgate-trace-{}-end", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("trace");
    std::fs::write(
        &path,
        "{\"at\": 0, \"tokens\": 1}\n{\"at\": 1, \"tokens\": 2}\nwrong\n{\"at\": 2, \"tokens\": 3}\n",
    )
    .unwrap();
    let stream = Source::File { path, format: None }.open(0, 1, Arc::default()).unwrap();
    let read: Vec<_> = Merged::new(vec![stream], Cut::default()).collect();
    std::fs::remove_dir_all(&dir).unwrap();
    // The reader is one request ahead, to merge.
    assert!(read.last().unwrap().is_err() && (2..=3).contains(&read.len()), "{read:?}");
}

#[test]
fn traces_are_merged_cut_and_scaled() {
    let stream = |times: &[u64], source| -> Stream {
        let all: Vec<_> = times.iter().map(|&at| Ok(Arrival { at, source, ..Arrival::default() })).collect();
        Box::new(all.into_iter())
    };
    let merged = |cut| {
        let all = Merged::new(vec![stream(&[0, 10, 30], 0), stream(&[5, 10, 40], 1)], cut);
        all.map(|a| a.map(|a| (a.at, a.source))).collect::<Result<Vec<_>, _>>().unwrap()
    };
    assert_eq!(merged(Cut::default()), [(0, 0), (5, 1), (10, 0), (10, 1), (30, 0), (40, 1)]);
    let part = Cut { from: 5, to: 40, speed: 2.0, requests: 3 };
    assert_eq!(merged(part), [(0, 1), (3, 0), (3, 1)]);
    assert_eq!(merged(Cut { requests: 99, ..part }), [(0, 1), (3, 0), (3, 1), (13, 0)]);
}

#[test]
fn a_made_up_load_has_its_rate_and_its_means() {
    let load: Poisson = "requests=100000,rate=50,input=exp1000,output=7,classes=4".parse().unwrap();
    let arrivals: Vec<_> = load.requests(9).collect();
    assert_eq!(arrivals, load.requests(9).collect::<Vec<_>>());
    assert_ne!(arrivals[..10], load.requests(8).take(10).collect::<Vec<_>>());
    let seconds = arrivals.last().unwrap().at as f64 / 1e9;
    let input = arrivals.iter().map(|a| a.input as f64).sum::<f64>() / 1e5;
    // Both means have a relative standard deviation of 1/√100000 ≈ 0.3 %.
    assert!((seconds / 2_000.0 - 1.0).abs() < 0.015, "{seconds}");
    assert!((input / 1_000.0 - 1.0).abs() < 0.015, "{input}");
    assert!(arrivals.iter().all(|a| a.output == 7));
    let first = arrivals.iter().filter(|a| a.class.as_deref() == Some("c0")).count();
    assert!((24_000..26_000).contains(&first), "{first}");
    for wrong in [
        "",
        "rate=1",
        "requests=5",
        "requests=5,rate=0",
        "requests=5,rate=1,input=exp0",
        "requests=5,rate=1,x=2",
    ] {
        assert!(wrong.parse::<Poisson>().is_err(), "{wrong}");
    }
}
