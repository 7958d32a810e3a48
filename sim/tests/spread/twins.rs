//! Members that carry one name.

use crate::spread::team::Team;

#[tokio::test(start_paused = true)]
async fn members_of_one_name_are_told_apart_in_what_is_said_of_the_spread() {
    let team = Team::new(4);
    let mut players = Vec::new();
    for holder in ["same", "same", "other"] {
        players.push(team.join_as(holder, |spread| spread.cap(1)).await);
    }
    team.settled(&players).await;
    let status = players[0].spread.status();
    let text = status.to_string();
    let names: Vec<&str> = text.lines().filter_map(|line| line.strip_suffix(": 1 task")).collect();
    assert_eq!(names.len(), 3, "{text}");
    assert_eq!(names[0], "other", "nobody else has that name");
    assert!(names[1] != names[2] && names[1..].iter().all(|name| name.starts_with("same (")), "{text}");
    for member in &status.members {
        assert_eq!(member.pid, std::process::id());
        assert!(!member.host.is_empty());
    }

    let waiting = status.waiting().next().unwrap().0.clone();
    let why = players[0].spread.explain(&waiting).await.unwrap().to_string();
    for name in names {
        assert!(why.contains(&format!("{name} has 1 task and a cap of 1")), "{name} in {why}");
    }
}
