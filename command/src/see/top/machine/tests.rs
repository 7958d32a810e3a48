//! Tests of the screen: its reaction to keys and pictures, and its look.

use expect_test::expect_file;
use ratatui::{buffer::Buffer, layout::Rect, style::Color};
use tenure::testing::{Fault, Faulty, Intercept, Operation};
use unicode_width::UnicodeWidthStr;

use super::{
    super::{
        draw, read,
        scene::{HOSTILE, Scene},
    },
    *,
};

const SMALL: (u16, u16) = (80, 24);
const LARGE: (u16, u16) = (200, 60);

fn state(view: View, size: (u16, u16)) -> State {
    let mut state = State::new("sqlite:shop.db", view, "");
    state.step(Event::Size(size.0, size.1));
    state
}

async fn looking(view: View, size: (u16, u16)) -> (Scene, State) {
    let scene = Scene::fleet().await;
    let mut state = state(view, size);
    state.step(Event::Picture(scene.picture().await));
    (scene, state)
}

fn drawn(state: &State, colours: bool) -> Buffer {
    let mut buffer = Buffer::empty(Rect::new(0, 0, state.size.0, state.size.1));
    draw::draw(&mut buffer, state, colours);
    buffer
}

/// The lines of the screen, each as wide as it.
fn lines(state: &State) -> Vec<String> {
    let buffer = drawn(state, false);
    let line = |row: u16| {
        let mut line = String::new();
        let mut column = 0;
        while column < buffer.area.width {
            let symbol = buffer[(column, row)].symbol();
            line.push_str(symbol);
            column += u16::try_from(symbol.width()).unwrap().max(1);
        }
        line
    };
    (0..buffer.area.height).map(line).collect()
}

fn screen(state: &State) -> String {
    lines(state).iter().flat_map(|line| [line.trim_end(), "\n"]).collect()
}

fn keys(state: &mut State, keys: &str) {
    for c in keys.chars() {
        state.step(Event::Key(Key::Char(c)));
    }
}

fn selected(state: &State) -> String {
    let rows = lines(state).into_iter().filter(|line| line.starts_with("> "));
    rows.map(|line| line[2..].split("  ").next().unwrap_or_default().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_views_of_a_small_terminal_and_of_a_large_one() {
    let (_scene, mut state) = looking(View::Instances, SMALL).await;
    for (columns, rows) in [SMALL, LARGE] {
        state.step(Event::Size(columns, rows));
        for view in View::ALL {
            state.look_at(view);
            let name = format!("{}-{columns}x{rows}", view.name().to_lowercase());
            expect_file![format!("../screens/{name}.txt")].assert_eq(&screen(&state));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_details_of_everything() {
    let (scene, mut state) = looking(View::Instances, SMALL).await;
    let pictures = scene.pictures();
    for (view, filter) in [
        (View::Instances, "web-1"),
        (View::Spreads, "topics"),
        (View::Locks, "leader"),
        (View::Locks, "topic-08"),
        (View::Schedules, "nightly"),
        (View::Changes, "died"),
    ] {
        state.look_at(view);
        keys(&mut state, "/");
        keys(&mut state, filter);
        state.step(Event::Key(Key::Enter));
        if let Step::Ask(subject) = state.step(Event::Key(Key::Enter)) {
            let shown = screen(&state);
            assert!(shown.contains("Loading"), "{shown}");
            let text = read(pictures.reader(), &subject).await.unwrap();
            state.step(Event::Read(subject, Ok(text)));
        }
        let name = format!("{}-{filter}", view.name().to_lowercase());
        expect_file![format!("../screens/{name}.txt")].assert_eq(&screen(&state));
        state.step(Event::Key(Key::Esc));
        state.step(Event::Key(Key::Esc));
    }
    keys(&mut state, "?");
    expect_file!["../screens/help.txt"].assert_eq(&screen(&state));
}

/// However small the terminal, and whatever the names.
#[tokio::test(start_paused = true)]
async fn every_line_is_as_wide_as_the_screen_and_nothing_moves_the_cursor() {
    let (_scene, mut state) = looking(View::Instances, SMALL).await;
    for (columns, rows) in [(1, 1), (2, 5), (7, 3), (20, 4), (33, 10), (80, 24), (131, 40)] {
        state.step(Event::Size(columns, rows));
        for view in View::ALL {
            state.look_at(view);
            for is_open in [false, true] {
                if is_open {
                    state.step(Event::Key(Key::Enter));
                }
                let lines = lines(&state);
                assert_eq!(lines.len(), usize::from(rows));
                for line in lines {
                    assert_eq!(line.width(), usize::from(columns), "{line:?}");
                    assert!(!line.chars().any(char::is_control), "{line:?}");
                    assert!(!line.contains('\u{202e}'), "{line:?}");
                }
            }
        }
    }
}

/// The store may go away while an operator reads.
#[tokio::test(start_paused = true)]
async fn the_text_that_was_read_stays_while_the_store_does_not_answer() {
    let (scene, mut state) = looking(View::Locks, SMALL).await;
    let Step::Ask(subject) = state.step(Event::Key(Key::Enter)) else { panic!("it is a key") };
    state.step(Event::Read(subject.clone(), Err("no route to host".to_owned())));
    assert!(screen(&state).contains("It cannot be read now: no route to host"), "{}", screen(&state));
    let text = read(scene.pictures().reader(), &subject).await.unwrap();
    for (read, is_old) in [(Ok(text.clone()), false), (Err("no answer".to_owned()), true), (Ok(text), false)]
    {
        state.step(Event::Read(subject.clone(), read));
        let shown = screen(&state);
        assert!(shown.contains("holder     web-1"), "{shown}");
        assert_eq!(shown.contains("It cannot be read now: no answer"), is_old, "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_value_is_not_on_the_screen() {
    let (scene, mut state) = looking(View::Locks, LARGE).await;
    keys(&mut state, "/leader");
    state.step(Event::Key(Key::Enter));
    let Step::Ask(subject) = state.step(Event::Key(Key::Enter)) else { panic!("it is a key") };
    let pictures = scene.pictures();
    let Subject::Key(id) = &subject else { panic!("it is a key") };
    let look = pictures.reader().key(id.clone()).await.unwrap();
    assert!(look.record.as_ref().unwrap().holding.as_ref().unwrap().by.value.is_some());
    let text = read(pictures.reader(), &subject).await.unwrap();
    state.step(Event::Read(subject, Ok(text)));
    let screen = screen(&state);
    assert!(screen.contains("8 bytes: `tenure show` prints it") && !screen.contains("a secret"), "{screen}");
}

#[tokio::test(start_paused = true)]
async fn without_colours_there_are_words() {
    let (_scene, state) = looking(View::Instances, SMALL).await;
    let has_colour = |buffer: &Buffer| buffer.content.iter().any(|cell| cell.fg != Color::Reset);
    assert!(!has_colour(&drawn(&state, false)) && has_colour(&drawn(&state, true)));
    let screen = screen(&state);
    for word in ["alive", "looks dead", "draining", "dead"] {
        assert!(screen.contains(word), "{word}: {screen}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_row_stays_selected_wherever_it_goes() {
    let (mut scene, mut state) = looking(View::Instances, SMALL).await;
    keys(&mut state, "jj");
    assert_eq!(selected(&state), "web-2");
    scene.open(9, "a-1", Vec::new()).await;
    state.step(Event::Picture(scene.picture().await));
    assert_eq!(selected(&state), "web-2");
    keys(&mut state, "k");
    assert_eq!(selected(&state), "web-1");
    state.step(Event::Key(Key::End));
    let last = selected(&state);
    keys(&mut state, "2");
    assert_ne!(selected(&state), last);
    keys(&mut state, "1");
    assert_eq!(selected(&state), last, "each view has a place of its own");
    state.step(Event::Key(Key::Home));
    assert_ne!(selected(&state), last);
}

#[tokio::test(start_paused = true)]
async fn rows_are_filtered() {
    let (_scene, mut state) = looking(View::Locks, SMALL).await;
    keys(&mut state, "/TOPIC-0");
    assert!(screen(&state).contains("filter: TOPIC-0_"), "{}", screen(&state));
    assert!(screen(&state).contains("9 of 14 rows"), "{}", screen(&state));
    state.step(Event::Key(Key::Backspace));
    state.step(Event::Key(Key::Enter));
    assert!(screen(&state).contains("10 of 14 rows"), "{}", screen(&state));
    assert_eq!(selected(&state), "topic-01");
    state.step(Event::Key(Key::Esc));
    assert!(screen(&state).contains("14 rows"), "{}", screen(&state));
    keys(&mut state, "/nobody has this");
    assert!(screen(&state).contains("No row has that text"), "{}", screen(&state));
    state.step(Event::Key(Key::Esc));
    // A letter is part of what is searched for, and else a command.
    keys(&mut state, "/");
    assert_eq!(state.step(Event::Key(Key::Char('q'))), Step::Draw);
    state.step(Event::Key(Key::Enter));
    assert_eq!(state.step(Event::Key(Key::Char('q'))), Step::Quit);
    keys(&mut state, "/");
    assert_eq!(state.step(Event::Key(Key::Interrupt)), Step::Quit);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_longer_than_the_screen_is_scrolled() {
    let (_scene, mut state) = looking(View::Spreads, (60, 10)).await;
    state.step(Event::Key(Key::End));
    state.step(Event::Key(Key::Enter));
    let first = screen(&state);
    assert!(first.contains("tenure spreads topics") && first.contains("lines 1 to 6 of"), "{first}");
    state.step(Event::Key(Key::PageDown));
    assert!(screen(&state).contains("lines 7 to 12 of"), "{}", screen(&state));
    state.step(Event::Key(Key::End));
    keys(&mut state, "jjj");
    let last = screen(&state);
    state.step(Event::Key(Key::Down));
    assert_eq!(screen(&state), last);
    state.step(Event::Key(Key::Home));
    assert_eq!(screen(&state), first);
}

#[tokio::test(start_paused = true)]
async fn the_screen_tells_a_store_that_was_not_read_from_an_empty_one() {
    let mut state = state(View::Instances, SMALL);
    assert!(screen(&state).contains("Loading."), "{}", screen(&state));
    let scene = Scene::new();
    let faulty = Faulty::default().around(scene.store());
    faulty.intercept().always(Operation::ALL, Fault::Refused);
    let unread = scene.pictures_by(faulty).follow().next().await.unwrap_err();
    state.step(Event::NotLoaded(unread.clone()));
    assert_eq!(screen(&state).lines().nth(1).unwrap().trim_end(), unread.to_string());
    state.step(Event::Picture(Scene::new().picture().await));
    for (view, said) in [
        (View::Instances, "No instance is in this namespace."),
        (View::Spreads, "No spread"),
        (View::Locks, "No key was ever held"),
        (View::Schedules, "No schedule"),
        (View::Changes, "Nothing has changed within the last hour."),
    ] {
        state.look_at(view);
        assert!(screen(&state).contains(said), "{}", screen(&state));
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_is_told_until_it_does() {
    let scene = Scene::fleet().await;
    let faulty = Faulty::default().around(scene.store());
    let mut followed = scene.pictures_by(faulty.clone()).follow();
    let mut state = state(View::Instances, SMALL);
    for is_away in [false, true, false] {
        if is_away {
            faulty.intercept().always(Operation::ALL, Fault::Refused);
        } else {
            faulty.intercept().heal();
        }
        loop {
            let picture = followed.next().await.unwrap();
            let is_told = picture.trouble().is_some();
            state.step(Event::Picture(picture));
            if is_told == is_away {
                break;
            }
        }
        let screen = screen(&state);
        let told = screen.lines().nth(1).unwrap();
        assert_eq!(told.starts_with("Store unreachable since 00:19:"), is_away, "{screen}");
        assert!(screen.contains("web-1") && screen.trim_end().ends_with("q quit"), "{screen}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_text_has_all_the_rows() {
    let (_scene, state) = looking(View::Locks, (200, 3)).await;
    let text = draw::text(&state);
    assert!(
        text.starts_with("tenure top  shop in sqlite:shop.db, 4 troubles, 3 alive  2026-01-01 00:"),
        "{text}"
    );
    for key in ["leader", "topic-01", "topic-10", "nightly", "<script>"] {
        assert!(text.lines().any(|line| line.starts_with(key)), "{key}: {text}");
    }
    assert!(text.lines().all(|line| line.trim_end() == line), "{text}");
    assert!(HOSTILE.contains('\u{202e}') && !text.contains('\u{202e}'), "{text}");
}
